"""A host that holds others up loses its connections to PostgreSQL, and no other host does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.models import AuditEntry
from hostaccess.connections import ACTION, MAX_ADVISORY_LOCKS, OWN_CLASSES, end_stalled
from hostworker.containers.runner import CONTAINER_LOCK
from hostworker.images.image_maker import CONVERSION_LOCK
from sessions.models import Lease
from tests.joined_hosts import connected
from tests.wait import until

NOW = timedelta(0)
HostConnection = psycopg.Connection[Any]
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('relation', 'advisory')"


def count_leases() -> int:
    """Return how many there are, by a connection that is closed then."""
    with closing(connection):
        return Lease.objects.count()


def is_ended(host: HostConnection) -> bool:
    try:
        host.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False


def count_waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return int(cursor.fetchone()[0])


def are_waiting() -> bool:
    return count_waiting() > 0


@contextmanager
def other_connection(variables: dict[str, str]) -> Iterator[HostConnection]:
    with connected(variables) as opened:
        yield opened


def test_others_get_what_a_host_has_locked(host_connection: HostConnection) -> None:
    with ThreadPoolExecutor(1) as pool:
        host_connection.execute("BEGIN")
        host_connection.execute("LOCK TABLE compute_lease IN ACCESS EXCLUSIVE MODE")
        waiting = pool.submit(count_leases)
        until(are_waiting)
        assert end_stalled() == {}, "they have not waited for long"
        assert end_stalled(blocked=NOW) == {"gpu7": "others wait for its locks"}
        assert waiting.result() == 0
    assert is_ended(host_connection)


def test_no_host_hides_behind_a_lock_of_its_own(variables: dict[str, str], host_connection: HostConnection) -> None:
    lock = f"SELECT pg_advisory_lock({CONTAINER_LOCK}, 1)".encode()
    with other_connection(variables) as other, ThreadPoolExecutor(2) as pool:
        other.execute(lock)
        host_connection.execute("BEGIN")
        host_connection.execute("LOCK TABLE compute_lease IN ACCESS EXCLUSIVE MODE")
        hidden = pool.submit(host_connection.execute, lock)
        until(are_waiting)
        waiting = pool.submit(count_leases)
        until(lambda: count_waiting() == 2)
        ended = end_stalled(blocked=NOW)
        other.execute("SELECT pg_advisory_unlock_all()")
        assert ended == {"gpu7": "others wait for its locks"}
        assert waiting.result() == 0
        with pytest.raises(psycopg.OperationalError):
            hidden.result()


def test_a_host_may_wait_for_itself(variables: dict[str, str], host_connection: HostConnection) -> None:
    lock = f"SELECT pg_advisory_lock({CONTAINER_LOCK}, 1)"
    with other_connection(variables) as other, ThreadPoolExecutor(1) as pool:
        host_connection.execute(lock.encode())
        waiting = pool.submit(other.execute, lock.encode())
        until(are_waiting)
        assert end_stalled(blocked=NOW) == {}
        host_connection.execute("SELECT pg_advisory_unlock_all()")
        waiting.result()


def test_a_transaction_without_end_is_ended(host_connection: HostConnection) -> None:
    host_connection.execute("BEGIN")
    host_connection.execute("SELECT count(*) FROM compute_session")
    assert end_stalled() == {}
    assert end_stalled(open_for=NOW) == {"gpu7": "its transaction does not end"}
    assert is_ended(host_connection)


def test_advisory_locks_of_others_are_not_kept(host_connection: HostConnection) -> None:
    host_connection.execute("SELECT pg_advisory_lock(7214305)")
    assert end_stalled() == {"gpu7": "it holds locks that are not its own"}
    assert is_ended(host_connection)


def test_the_tables_of_locks_are_not_filled(host_connection: HostConnection) -> None:
    statement = f"SELECT pg_advisory_lock({OWN_CLASSES[0]}, number) FROM generate_series(1, %s) AS number"
    host_connection.execute(statement.encode(), [MAX_ADVISORY_LOCKS])
    assert end_stalled() == {}
    host_connection.execute(f"SELECT pg_advisory_lock({OWN_CLASSES[1]}, 0)".encode())
    assert end_stalled() == {"gpu7": "it holds locks that are not its own"}


def test_hosts_workers_hold_locks_of_these_classes() -> None:
    assert set(OWN_CLASSES) == {CONTAINER_LOCK, CONVERSION_LOCK}


def stall_once(variables: dict[str, str]) -> None:
    """Begin a transaction as the host, and have it ended."""
    host = connected(variables)
    host.execute("BEGIN")
    assert end_stalled(open_for=NOW)
    host.close()


def test_the_log_tells_of_a_host_once_an_hour(variables: dict[str, str]) -> None:
    stall_once(variables)
    stall_once(variables)
    [entry] = AuditEntry.objects.filter(action=ACTION)
    assert (entry.object_text, entry.changes) == ("gpu7", {"reason": [None, "its transaction does not end"]})
    AuditEntry.objects.update(at=entry.at - timedelta(hours=1))
    stall_once(variables)
    assert AuditEntry.objects.filter(action=ACTION).count() == 2
