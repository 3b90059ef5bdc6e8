"""Sessions' own key pairs: each running session gets one, whichever worker dies when, and its file opens it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import asyncssh
import pytest
from django.db import connection, connections
from django.test import override_settings
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from hostworker.containers import runner
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.runtime_protocol import EngineUnreachableError, ExecResult
from hostworker.terminals.session_keys import FILE, SessionKeys
from hostworker.tests.fault_injection import FaultInjectingRuntime
from resources.models import Host
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import make_host, run_session, session_in
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)


class Home:
    """What `execute` wrote to the home folders of containers."""

    def __init__(self, exit_code: int = 0) -> None:
        self.written: list[str] = []
        self._exit_code = exit_code

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> ExecResult:
        assert command[-1] == FILE
        self.written.append(environment["GP_KEY"])
        return ExecResult(exit_code=self._exit_code, output="read-only file system")

    def public_key(self) -> str:
        """Return the public half of what was written last."""
        key = asyncssh.import_private_key(self.written[-1])
        return " ".join(key.export_public_key().decode().split()[:2])


@pytest.fixture
def home(runtime: FaultInjectingRuntime) -> Home:
    home = Home()
    runtime.set_exec_handler(home)
    return home


@pytest.fixture
def host() -> Host:
    return make_host()


def running(runtime: FaultInjectingRuntime, host: Host) -> Session:
    session = run_session(host=host)
    runtime.create(make_spec("anything", session=session.pk, attempt=session.attempt))
    runtime.start(session.pk, session.attempt)
    return session


def test_only_public_half_of_session_key_is_stored(runtime: FaultInjectingRuntime, host: Host, home: Home) -> None:
    session = running(runtime, host)
    keys = SessionKeys(runtime, host)
    keys.poll()
    keys.poll()
    session.refresh_from_db()
    assert len(home.written) == 1
    assert session.ssh_public_key == home.public_key()
    assert "PRIVATE" not in session.ssh_public_key


def test_only_running_sessions_of_this_host_get_keys(runtime: FaultInjectingRuntime, host: Host, home: Home) -> None:
    running(runtime, make_host())
    for status in set(Status) - {Status.RUNNING}:
        session_in(status, host=host if status not in (Status.PENDING, Status.CANCELLED) else None)
    SessionKeys(runtime, host).poll()
    assert not home.written


def test_key_file_of_dead_worker_is_replaced(runtime: FaultInjectingRuntime, host: Host, home: Home) -> None:
    session = running(runtime, host)
    runtime.fail_next("execute", EngineUnreachableError("died"), happens_after=True)
    with pytest.raises(EngineUnreachableError):
        SessionKeys(runtime, host).poll()
    session.refresh_from_db()
    assert session.ssh_public_key == ""
    SessionKeys(runtime, host).poll()
    session.refresh_from_db()
    assert session.ssh_public_key == home.public_key()


def test_two_workers_at_once_give_one_key(runtime: FaultInjectingRuntime, host: Host, home: Home) -> None:
    session = running(runtime, host)

    def poll() -> None:
        SessionKeys(runtime, host).poll()
        connections.close_all()

    def overtake() -> None:
        """Let another worker go as far as it comes while this one is about to write the file."""
        other = pool.submit(poll)
        until(lambda: other.done() or is_anybody_waiting_for_a_lock())

    runtime.just_before("execute", overtake)
    with ThreadPoolExecutor() as pool:
        pool.submit(poll).result(SECONDS)
    session.refresh_from_db()
    assert session.ssh_public_key == home.public_key()
    assert len(home.written) == 1


def is_anybody_waiting_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        (waiting,) = cursor.fetchone() or (0,)
    return bool(waiting)


def test_a_container_that_takes_no_file_is_asked_once(
    runtime: FaultInjectingRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(exit_code=1)
    runtime.set_exec_handler(home)
    running(runtime, host)
    keys = SessionKeys(runtime, host)
    keys.poll()
    keys.poll()
    assert len(home.written) == 1
    assert "it has no key of its own: its home folder takes no file: read-only file system" in caplog.text


def test_a_session_that_has_just_started_lets_others_start_first(
    runtime: FaultInjectingRuntime, host: Host, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = running(runtime, host)
    monkeypatch.setattr(runner, "_preparing", {("another", 1)})
    SessionKeys(runtime, host).poll()
    assert not home.written
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - timedelta(seconds=11))
    SessionKeys(runtime, host).poll()
    assert home.written, "but not for ever"


@override_settings(COMPUTE_SSH_ADDRESS="")
def test_without_ssh_no_session_gets_a_key(runtime: FaultInjectingRuntime, host: Host, home: Home) -> None:
    running(runtime, host)
    SessionKeys(runtime, host).poll()
    assert not home.written


def test_an_idle_host_seldom_asks(
    runtime: FaultInjectingRuntime,
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    keys, clock = SessionKeys(runtime, host), SimpleNamespace(now=1000.0)
    monkeypatch.setattr("hostworker.terminals.session_keys.time.monotonic", lambda: clock.now)
    monkeypatch.setattr(runner, "_last_start", SimpleNamespace(at=clock.now - 60))
    for seconds, queries in ((0, 1), (1, 0), (10, 0), (5, 1), (1, 0)):
        clock.now += seconds
        with django_assert_num_queries(queries):
            keys.poll()
    runner._last_start.at = clock.now
    with django_assert_num_queries(1):
        keys.poll()
