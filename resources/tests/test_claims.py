"""The name of a host belongs to one machine, and a clone of that machine is told from it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from resources.hosts import services
from resources.hosts.claims import HostIdentity, HostNameTakenError, claim
from resources.models import Host
from tests.factories import make_host
from tests.wait import until

FIRST = HostIdentity(machine_id="machine", engine_id="engine", boot_id="boot")
CLONE = replace(FIRST, boot_id="boot of the clone")
OTHER = HostIdentity(machine_id="other machine", engine_id="other engine", boot_id="other boot")
LONG_AGO = timedelta(minutes=10)


def bound(silent_for: timedelta = timedelta()) -> Host:
    """Return a host that is bound to FIRST, whose last heartbeat was so long ago."""
    return make_host(name="alpha", heartbeat_at=timezone.now() - silent_for, **asdict(FIRST))


@contextmanager
def beating(host: Host) -> Iterator[None]:
    """Send the host's heartbeats from another thread, as fast as the database takes them."""
    over = threading.Event()
    count = 0

    def beat() -> None:
        nonlocal count
        while not over.is_set():
            services.heartbeat(host)
            count += 1
        connection.close()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        until(lambda: count > 0)
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("second", [CLONE, OTHER], ids=["clone", "other machine"])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_second_machine_is_refused_while_the_first_beats(second: HostIdentity, replaces: bool) -> None:
    host = bound()
    with beating(host), pytest.raises(HostNameTakenError, match="Another machine runs"):
        claim("alpha", second, replaces=replaces)
    assert services.heartbeat(host)


@pytest.mark.django_db
def test_a_machine_that_booted_again_keeps_its_name() -> None:
    host = bound(silent_for=LONG_AGO)
    claim("alpha", CLONE)
    assert Host.objects.get().boot_id == CLONE.boot_id
    assert not services.heartbeat(host)  # of the worker before the boot


@pytest.mark.django_db
def test_another_machine_takes_the_place_only_where_it_says_so() -> None:
    host = bound(silent_for=LONG_AGO)
    with pytest.raises(HostNameTakenError, match="--replace"):
        claim("alpha", OTHER)
    assert services.heartbeat(host)
    Host.objects.update(heartbeat_at=timezone.now() - LONG_AGO)
    claim("alpha", OTHER, replaces=True)
    assert not services.heartbeat(host)


@pytest.mark.django_db
def test_same_boot_and_silent_engine_are_let_in() -> None:
    bound()
    claim("alpha", FIRST)
    claim("alpha", replace(FIRST, engine_id=""))
    claim("new", OTHER)
    assert Host.objects.get().engine_id == FIRST.engine_id


@pytest.mark.django_db
def test_heartbeats_are_dated_by_the_clock_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    host = bound()
    ahead = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    services.heartbeat(host)
    assert Host.objects.get().heartbeat_at < ahead - timedelta(minutes=50)
    assert services.declare_lost() == []
