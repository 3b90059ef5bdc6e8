"""What the runner does under a container's lock, in which order, and whom it tells."""

import time

import pytest
from django.db import connection

from hostworker.containers import runner
from hostworker.containers.runner import CONTAINER_LOCK
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import fresh, started, stopping
from sessions import notify
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.parking import services as parking

pytestmark = pytest.mark.django_db


def locks_held() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s", [CONTAINER_LOCK])
        return int(cursor.fetchone()[0])


def test_containers_are_started_and_stopped_under_their_lock(runtime: FaultInjectingRuntime) -> None:
    held: list[int] = []
    for operation in ("create", "stop"):
        runtime.just_before(operation, lambda: held.append(locks_held()))
    session = stopping(runtime)
    runner.stop(runtime, session.pk, 1)
    assert (held, locks_held()) == ([1, 1], 0)


def test_starts_under_way_and_the_last_one_are_known(runtime: FaultInjectingRuntime) -> None:
    before, under_way = time.monotonic(), []
    runtime.just_before("create", lambda: under_way.append(runner.is_any_preparing()))
    started(runtime)
    assert (under_way, runner.is_any_preparing()) == ([True], False)
    assert 0 <= runner.seconds_since_start() <= time.monotonic() - before


@pytest.mark.parametrize("is_parked", [False, True])
def test_routes_are_withdrawn_before_a_container_is_stopped(is_parked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noting(FaultInjectingRuntime):
        """Notes for how long containers may go on."""

        def stop(self, session: str, attempt: int, grace_seconds: int) -> None:
            acts.append(grace_seconds)
            super().stop(session, attempt, grace_seconds)

    runtime = Noting()
    acts: list[object] = []
    session = started(runtime)
    monkeypatch.setattr(runner, "withdraw", acts.append)
    if is_parked:
        parking.park(session, actor=session.owner)
    else:
        services.terminate(fresh(session), actor=session.owner)
    runner.stop(runtime, session.pk, 1)
    assert acts[:2] == [session.pk, runner.PARKING_GRACE_SECONDS if is_parked else runner.STOP_GRACE_SECONDS]


@pytest.mark.parametrize("runs_again", [False, True])
def test_clearing_an_attempt_withdraws_no_routes_of_the_next(
    runtime: FaultInjectingRuntime, runs_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdrawn: list[str] = []
    session = started(runtime)
    if not runs_again:
        session.move_to(Status.ERROR, Reason.HOST_LOST)
    monkeypatch.setattr(runner, "withdraw", withdrawn.append)
    runner.clear_away(runtime, session.pk, 0)
    assert withdrawn == ([] if runs_again else [session.pk])


def test_a_found_address_is_told_to_the_proxies(
    runtime: FaultInjectingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = started(runtime)
    told: list[str] = []
    monkeypatch.setattr(notify, "routes_changed", told.append)
    runtime.lose_container(session.pk, 1)
    runner.note_address(runtime, session.pk, 1)
    assert (told, fresh(session).address) == ([], session.address)
    again = started(runtime)
    Session.objects.filter(pk=again.pk).update(address=None)
    runner.note_address(runtime, again.pk, 1)
    assert (told, fresh(again).address) == ([again.pk], again.address)


def test_sessions_are_read_without_their_owners_password(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    read = runner.running_session(session.pk)
    assert read
    assert "password" in read.owner.get_deferred_fields()
    services.terminate(fresh(session), actor=session.owner)
    assert runner.running_session(session.pk) is None
