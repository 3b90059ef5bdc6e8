"""Sessions that wait for a start time or for other sessions, and their wait statuses."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import DependencyKind, Kind, Reason, Status
from sessions.models import STOP_DURATION, Session
from sessions.sweeps import enforce_deadlines
from tests.factories import make_host, make_session, run_session

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host(gpus=1, cpu=4)


def after(*others: Session, host: Host) -> Session:
    session = make_session(resource_group=host.group)
    session.depends_on.set(others)
    return session


def state(session: Session) -> tuple[str, str]:
    session.refresh_from_db()
    return session.status, session.reason


def end(session: Session, exit_code: int = 0) -> None:
    target = Status.TERMINATED if exit_code == 0 else Status.ERROR
    session.move_to(target, Reason.CONTAINER_EXITED, fields={"exit_code": exit_code})


def test_a_later_start_time_blocks_nobody_else(host: Host) -> None:
    later = make_session(resource_group=host.group, cpu=4, not_before=timezone.now() + HOUR)
    small = make_session(resource_group=host.group)
    assert run_pass() == 1
    assert state(later) == (Status.PENDING, Reason.START_TIME)
    assert state(small) == (Status.SCHEDULED, Reason.ASSIGNED)
    Session.objects.filter(pk=small.pk).delete()
    Session.objects.filter(pk=later.pk).update(not_before=timezone.now())
    assert run_pass() == 1


def test_waiting_counts_only_from_the_start_time(host: Host) -> None:
    timed = make_session(resource_group=host.group, cpu=4, not_before=timezone.now())
    Session.objects.filter(pk=timed.pk).update(created_at=timezone.now() - 5 * HOUR)
    waiting = make_session(resource_group=host.group, cpu=4)
    Session.objects.filter(pk=waiting.pk).update(created_at=timezone.now() - HOUR)
    assert run_pass() == 1
    assert state(waiting) == (Status.SCHEDULED, Reason.ASSIGNED)


def test_a_session_starts_after_all_dependencies_succeed(host: Host) -> None:
    first, second = (run_session(host=host, kind=Kind.BATCH, command="true") for _ in range(2))
    last = after(first, second, host=host)
    assert run_pass() == 0
    assert state(last) == (Status.PENDING, Reason.DEPENDENCY)
    end(first)
    assert run_pass() == 0
    end(second)
    enforce_deadlines()
    assert run_pass() == 1


def test_an_interactive_session_counts_as_success_once_it_is_ended(host: Host) -> None:
    first = run_session(host=host)
    last = after(first, host=host)
    first.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    first.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    assert run_pass() == 1
    assert state(last)[0] == Status.SCHEDULED


def test_a_failure_cancels_all_transitive_dependents(host: Host) -> None:
    first = run_session(host=host, kind=Kind.BATCH, command="false", name="training")
    second = after(first, host=host)
    third = after(second, host=host)
    unrelated = make_session(resource_group=host.group, cpu=4)
    end(first, exit_code=3)
    assert run_pass() == 1
    enforce_deadlines()
    assert state(second) == state(third) == (Status.CANCELLED, Reason.DEPENDENCY_FAILED)
    assert second.detail == "It depends on training, which has ended without success."
    assert state(unrelated)[0] == Status.SCHEDULED


def test_a_terminated_batch_session_has_not_succeeded(host: Host) -> None:
    first = run_session(host=host, kind=Kind.BATCH, command="sleep 9")
    last = after(first, host=host)
    first.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    first.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    enforce_deadlines()
    assert state(last)[0] == Status.CANCELLED


def test_estimates_are_whole_minutes_and_ignore_small_changes(host: Host) -> None:
    running = run_session(host=host, fgpu=2000, time_limit=2 * HOUR)
    waiting = make_session(resource_group=host.group, fgpu=1000)
    run_pass()
    waiting.refresh_from_db()
    assert running.started_at
    assert waiting.eta is not None
    assert timedelta() <= waiting.eta - (running.started_at + 2 * HOUR + STOP_DURATION) < timedelta(minutes=1)
    assert waiting.eta.second == 0
    assert waiting.eta_reason == "1 fGPU falls free when 1 session reaches its time limit"
    eta = waiting.eta
    for moved, expected in ((timedelta(minutes=-5), eta), (timedelta(minutes=-30), eta - timedelta(minutes=30))):
        Session.objects.filter(pk=running.pk).update(started_at=running.started_at + moved)
        run_pass()
        waiting.refresh_from_db()
        assert waiting.eta == expected
    running.move_to(Status.ERROR, Reason.CONTAINER_LOST)
    assert run_pass() == 1
    waiting.refresh_from_db()
    assert not waiting.eta
    assert not waiting.eta_reason


def test_a_stopping_session_is_expected_to_end_soon(host: Host) -> None:
    running = run_session(host=host, fgpu=2000)
    waiting = make_session(resource_group=host.group, fgpu=1000)
    running.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    run_pass()
    waiting.refresh_from_db()
    assert waiting.eta is not None
    assert waiting.eta < timezone.now() + timedelta(minutes=2)


def test_a_pending_timeout_cancels_waiting_sessions(host: Host) -> None:
    group = host.group
    group.pending_timeout = HOUR
    group.save()
    first = run_session(host=host, cpu=4)
    ids = {
        "late": make_session(resource_group=group),
        "early": make_session(resource_group=group),
        "timed": make_session(resource_group=group, not_before=timezone.now() - HOUR / 2),
        "dependent": after(first, host=host),
        "elsewhere": make_session(),
        "returned": make_session(resource_group=group),
    }
    run_pass()
    Session.objects.filter(status=Status.PENDING).exclude(pk__in=(ids["early"].pk, ids["returned"].pk)).update(
        created_at=timezone.now() - HOUR - timedelta(seconds=1),
        status_at=timezone.now() - HOUR - timedelta(seconds=1),
    )
    Session.objects.filter(pk=ids["returned"].pk).update(created_at=timezone.now() - timedelta(days=1))
    enforce_deadlines()
    cancelled = [name for name, session in ids.items() if state(session)[0] == Status.CANCELLED]
    assert cancelled == ["late"]
    assert state(ids["late"]) == (Status.CANCELLED, Reason.PENDING_TIMEOUT)


def test_the_time_limit_of_its_owner_ends_a_session() -> None:
    short, long = (run_session(time_limit=limit * HOUR) for limit in (1, 3))
    Session.objects.update(started_at=timezone.now() - 2 * HOUR)
    enforce_deadlines()
    assert state(short) == (Status.TERMINATING, Reason.TIME_LIMIT)
    assert state(long)[0] == Status.RUNNING


def test_a_group_is_scheduled_by_its_own_rules() -> None:
    spread = make_host(gpus=2)
    spread.group.placement = "spread"
    spread.group.save()
    make_host(group=spread.group, gpus=2)
    for _ in range(2):
        make_session(resource_group=spread.group, fgpu=500)
    assert run_pass() == 2
    assert len(set(Session.objects.values_list("host", flat=True))) == 2


def waiting_for(kind: DependencyKind, *others: Session, host: Host) -> Session:
    session = make_session(resource_group=host.group)
    session.depends_on.set(others, through_defaults={"kind": kind})
    return session


RUNS, SUCCEEDS, FAILS, NEVER_RUNS = "runs", "succeeds", "fails", "never runs"
BLOCKED, STARTS = (Status.PENDING, Reason.DEPENDENCY), (Status.SCHEDULED, Reason.ASSIGNED)
CANCELLED = (Status.CANCELLED, Reason.DEPENDENCY_FAILED)


@pytest.mark.parametrize(
    ("kind", "became"),
    [
        (DependencyKind.AFTER, {RUNS: STARTS, SUCCEEDS: STARTS, FAILS: STARTS, NEVER_RUNS: CANCELLED}),
        (DependencyKind.AFTER_OK, {RUNS: BLOCKED, SUCCEEDS: STARTS, FAILS: CANCELLED, NEVER_RUNS: CANCELLED}),
        (DependencyKind.AFTER_NOT_OK, {RUNS: BLOCKED, SUCCEEDS: CANCELLED, FAILS: STARTS, NEVER_RUNS: STARTS}),
        (DependencyKind.AFTER_ANY, {RUNS: BLOCKED, SUCCEEDS: STARTS, FAILS: STARTS, NEVER_RUNS: STARTS}),
    ],
)
def test_each_kind_waits_for_what_it_says(kind: DependencyKind, became: dict[str, tuple[str, str]]) -> None:
    host = make_host(cpu=32)
    batch: dict[str, Any] = {"kind": Kind.BATCH, "command": "train"}
    firsts = {name: run_session(host=host, **batch) for name in (RUNS, SUCCEEDS, FAILS)}
    firsts[NEVER_RUNS] = make_session(resource_group=host.group, **batch)
    lasts = {name: waiting_for(kind, first, host=host) for name, first in firsts.items()}
    end(firsts[SUCCEEDS])
    end(firsts[FAILS], exit_code=3)
    firsts[NEVER_RUNS].move_to(Status.CANCELLED, Reason.USER_REQUEST)
    enforce_deadlines()
    run_pass()
    assert {name: state(session) for name, session in lasts.items()} == became


def test_what_has_started_once_has_started(host: Host) -> None:
    first = run_session(host=host, kind=Kind.BATCH, command="train", is_preemptible=True)
    last = waiting_for(DependencyKind.AFTER, first, host=host)
    first.move_to(Status.TERMINATING, Reason.PREEMPTED)
    first.move_to(Status.PENDING, Reason.PREEMPTED, fields={"host_id": None, "started_at": None})
    run_pass()
    assert state(last)[0] == Status.SCHEDULED


def test_several_kinds_are_all_waited_for(host: Host) -> None:
    first, second = (run_session(host=host, kind=Kind.BATCH, command="train") for _ in range(2))
    last = waiting_for(DependencyKind.AFTER_ANY, first, host=host)
    last.depends_on.add(second, through_defaults={"kind": DependencyKind.AFTER_NOT_OK})
    end(first)
    run_pass()
    assert state(last) == BLOCKED
    end(second, exit_code=1)
    run_pass()
    assert state(last) == STARTS
