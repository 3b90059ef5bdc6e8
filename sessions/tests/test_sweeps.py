"""Every state has a way out by itself: the deadlines, shortly before and just after."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from resources import clock
from resources.amounts.units import GIB, MIB
from resources.clock import SharedClock
from resources.models import Host, HostStatus
from scheduler.cycle.passes import run_pass
from sessions import sweeps
from sessions.launching import services
from sessions.launching.services import LaunchRequest, submit
from sessions.lifecycle import FINAL, IN_CONTAINER, Reason, Status
from sessions.models import Conversion, Lease, Session, SessionEvent
from sessions.parking import services as parking
from sessions.sweeps import CLAIM_DEADLINE, PREPARE_DEADLINE, enforce_deadlines
from tests.factories import (
    make_group,
    make_host,
    make_image,
    make_policy,
    make_project,
    make_session,
    make_user,
    parked_session,
    run_session,
    session_in,
)
from tests.queues import take_all

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)
MARGIN = timedelta(seconds=15)  # in which a busy machine gets from a time stamp to the sweep
GRACE = timedelta(minutes=10)


def age(session: Session, field: str, by: timedelta) -> None:
    """Let the session's time stamp lie `by` in the past."""
    Session.objects.filter(pk=session.pk).update(**{field: timezone.now() - by})


def lose(host: Host, since: timedelta) -> None:
    then = timezone.now() - since
    Host.objects.filter(pk=host.pk).update(status=HostStatus.LOST, lost_at=then, heartbeat_at=then)


def now(session: Session) -> tuple[str, str]:
    session.refresh_from_db()
    return session.status, session.reason


def test_an_unclaimed_session_is_requeued_in_place(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    take_all("scheduler")
    session = session_in(Status.SCHEDULED)
    first, last = (make_session(resource_group=session.resource_group) for _ in range(2))
    age(session, "created_at", timedelta(minutes=3))
    age(first, "created_at", timedelta(minutes=4))
    host = session.host
    assert host
    age(session, "status_at", CLAIM_DEADLINE - MARGIN)
    enforce_deadlines()
    assert now(session) == (Status.SCHEDULED, Reason.ASSIGNED)
    age(session, "status_at", CLAIM_DEADLINE + SECOND)
    with django_capture_on_commit_callbacks(execute=True):
        enforce_deadlines()
        enforce_deadlines()
    assert now(session) == (Status.PENDING, Reason.CLAIM_TIMEOUT)
    assert (session.host, session.avoided_hosts) == (None, [host.pk])
    assert host.name in session.detail
    assert not Lease.objects.exists()
    assert session.events.count() == 2
    waiting = Session.objects.filter(status=Status.PENDING)
    assert list(waiting.in_queue_order()) == [first, session, last]
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


def test_an_unresponsive_host_is_avoided() -> None:
    session = session_in(Status.SCHEDULED)
    silent = session.host
    age(session, "status_at", CLAIM_DEADLINE + SECOND)
    enforce_deadlines()
    other = make_host(group=session.resource_group, name="zzz", cpu=128)  # by any other rule the worse choice
    assert run_pass() == 1
    session.refresh_from_db()
    assert (session.host, session.attempt) == (other, 2)
    Host.objects.filter(pk=other.pk).update(status=HostStatus.LOST)
    enforce_deadlines()
    assert silent
    Session.objects.update(avoided_hosts=[silent.pk])
    assert run_pass() == 1
    session.refresh_from_db()
    assert (session.host, session.attempt) == (silent, 3)


def test_a_lost_hosts_sessions_are_requeued_at_once() -> None:
    session = session_in(Status.SCHEDULED)
    assert session.host
    lose(session.host, SECOND)
    enforce_deadlines()
    assert now(session) == (Status.PENDING, Reason.CLAIM_TIMEOUT)


def test_a_session_that_never_starts_is_tried_elsewhere() -> None:
    session = session_in(Status.PREPARING)
    age(session, "status_at", PREPARE_DEADLINE - MARGIN)
    enforce_deadlines()
    assert now(session) == (Status.PREPARING, Reason.CLAIMED)
    age(session, "status_at", PREPARE_DEADLINE + SECOND)
    enforce_deadlines()
    assert now(session) == (Status.PENDING, Reason.HOST_FAULT)
    assert (session.start_failures, len(session.avoided_hosts)) == (1, 1)
    assert not Lease.objects.exists()


@pytest.mark.parametrize("status", sorted(IN_CONTAINER))
def test_lost_hosts_sessions_live_for_the_grace_period(status: Status) -> None:
    host = make_host(group=make_group(host_loss_grace=GRACE))
    session = session_in(status, host=host)
    lose(host, GRACE - MARGIN)
    enforce_deadlines()
    assert now(session)[0] == status
    lose(host, GRACE + SECOND)
    enforce_deadlines()
    ended_as = {Status.TERMINATING: Status.TERMINATED, Status.RUNNING: Status.ERROR}
    requeued = (Status.PENDING, Reason.HOST_FAULT)
    assert now(session) == ((ended_as[status], Reason.HOST_LOST) if status in ended_as else requeued)
    assert not Lease.objects.exists()


def test_the_grace_period_starts_with_the_loss() -> None:
    session = run_session()
    assert session.host
    lose(session.host, 2 * GRACE)
    Host.objects.update(status=HostStatus.READY, heartbeat_at=timezone.now())
    enforce_deadlines()
    assert now(session)[0] == Status.RUNNING


def test_grace_of_a_lost_host_uses_the_database_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    session = run_session()
    conversion = Conversion.objects.create(
        session=session, name="mine", tag="1", image=make_image(), host=session.host, recipe="FROM scratch"
    )
    assert session.host
    lose(session.host, GRACE / 2)
    ahead = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    enforce_deadlines()
    conversion.refresh_from_db()
    assert now(session)[0] == Status.RUNNING
    assert conversion.is_active


@pytest.mark.parametrize("wrong", [timedelta(days=-2), timedelta(days=2)])
def test_no_deadline_counts_by_the_wrong_clock_of_a_machine(wrong: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    right = timezone.now()
    shared = SharedClock()
    shared.note(right, time.monotonic())
    monkeypatch.setattr(clock, "shared_clock", shared)
    monkeypatch.setattr(timezone, "now", lambda: right + wrong)
    group = make_group(pending_timeout=timedelta(days=1), max_lifetime=timedelta(days=1))
    order = LaunchRequest(image=make_image(), resource_group=group, cpu=1, memory=GIB, shared_memory=64 * MIB, fgpu=0)
    make_host(group=group)
    (waiting,) = submit(make_user(), order)
    running = run_session(resource_group=group)
    enforce_deadlines()
    assert now(waiting)[0] == Status.PENDING
    assert now(running)[0] == Status.RUNNING
    assert running.started_at
    assert abs(running.started_at - right) < timedelta(hours=1)
    assert abs(waiting.created_at - right) < timedelta(hours=1)


def test_a_silent_host_is_lost_and_only_then(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    take_all("scheduler")
    silent, heard = make_host(), make_host()
    for host, silence in ((silent, 20 * SECOND + SECOND), (heard, 20 * SECOND - MARGIN)):
        Host.objects.filter(pk=host.pk).update(heartbeat_at=timezone.now() - silence)
    with django_capture_on_commit_callbacks(execute=True):
        enforce_deadlines()
    assert list(Host.objects.filter(status=HostStatus.LOST)) == [silent]
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


def test_a_session_ends_at_the_policys_lifetime(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    limit = timedelta(hours=1)
    bounded = run_session(owner=make_user(policy=make_policy(max_lifetime=limit)))
    unbounded = run_session()
    for session in (bounded, unbounded):
        age(session, "started_at", limit - MARGIN)
    enforce_deadlines()
    assert now(bounded)[0] == Status.RUNNING
    for session in (bounded, unbounded):
        age(session, "started_at", limit + SECOND)
    with django_capture_on_commit_callbacks(execute=True):
        enforce_deadlines()
    assert now(bounded) == (Status.TERMINATING, Reason.LIFETIME)
    assert now(unbounded)[0] == Status.RUNNING
    assert bounded.host
    assert take_all(f"host.{bounded.host.name}") == [("hostworker.tasks.stop_session", (bounded.pk, 1))]


def test_what_is_in_time_is_let_be() -> None:
    sessions = [session_in(status) for status in Status]
    before = list(Session.objects.values())
    enforce_deadlines()
    assert list(Session.objects.values()) == before
    assert len(before) == len(sessions)


def end_another(session: Session) -> None:
    """End the other session of the two, as its owner does while a sweep is at the first."""
    for other in Session.objects.exclude(pk=session.pk).exclude(status__in=FINAL):
        services.end(other, Reason.USER_REQUEST, "")


def parked_and_late(host: Host) -> Session:
    session = parked_session(host=host)
    parking.resume(session)
    Session.objects.filter(pk=session.pk).update(not_before=timezone.now() - GRACE)
    return session


@pytest.mark.parametrize(
    ("status", "sweep"),
    [
        (Status.SCHEDULED, sweeps.requeue_unclaimed),
        (Status.PREPARING, sweeps.end_unprepared),
        (Status.RUNNING, sweeps.end_on_lost_hosts),
        (Status.PENDING, sweeps.cancel_timed_out),
    ],
)
def test_one_that_moves_on_meanwhile_ends_no_sweep(
    status: Status, sweep: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host(group=make_group(host_loss_grace=GRACE, pending_timeout=SECOND))
    both = [parked_and_late(host) if status == Status.PENDING else session_in(status, host=host) for _ in range(2)]
    Session.objects.update(status_at=timezone.now() - GRACE * 6)
    if status == Status.RUNNING:
        lose(host, 2 * GRACE)
    move_to = Session.move_to
    moved: list[Session] = []

    def move_first(session: Session, *arguments: object, **options: object) -> None:
        move_to(session, *arguments, **options)  # type: ignore[arg-type]  # as they came
        if not moved:
            moved.append(session)
            end_another(session)

    monkeypatch.setattr(Session, "move_to", move_first)
    sweep()
    (first,) = moved
    reasons = {session.pk: now(session)[1] for session in both}
    assert reasons.pop(first.pk) != Reason.USER_REQUEST
    assert set(reasons.values()) == {Reason.USER_REQUEST}


def test_a_stopped_session_on_a_lost_host_moves_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_in(Status.RUNNING, kind="batch", command="train")
    session.move_to(Status.TERMINATING, Reason.REQUEUED)
    old_view = Session.objects.get(pk=session.pk)
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    sweeps._conclude(old_view)
    assert now(session) == (Status.TERMINATED, Reason.USER_REQUEST)


def test_each_deadline_says_what_was_reached() -> None:
    hour = timedelta(hours=1)
    by_owner = run_session(owner=make_user(policy=make_policy(max_lifetime=hour)))
    by_project = run_session(project=make_project(policy=make_policy(max_lifetime=hour)))
    by_group = run_session(resource_group=make_group(max_lifetime=hour))
    by_limit = run_session(time_limit=hour)
    starting = session_in(Status.PREPARING, time_limit=hour)
    within = run_session(owner=make_user(policy=make_policy(max_lifetime=hour)), extension=2 * hour)
    Session.objects.update(started_at=timezone.now() - 2 * hour, start_by=timezone.now() - 2 * hour)
    Session.objects.filter(pk=starting.pk).update(started_at=None)
    enforce_deadlines()
    details = {session.pk: session.detail for session in Session.objects.filter(status=Status.TERMINATING)}
    assert details == {
        by_owner.pk: "It reached the maximum lifetime of its owner's policy.",
        by_project.pk: "It reached the maximum lifetime of its project's policy.",
        by_group.pk: "It reached the maximum lifetime of its resource group.",
        by_limit.pk: "It reached its time limit.",
        starting.pk: "Its start took longer than its time limit.",
    }
    assert now(within)[0] == Status.RUNNING


def test_waiting_ends_after_the_longest_of_its_groups() -> None:
    short, long = make_group(pending_timeout=timedelta(minutes=5)), make_group(pending_timeout=timedelta(minutes=20))
    endless = make_group()
    one = make_session(resource_group=short)
    several = make_session(resource_group=short, group_choices=[short.pk, long.pk])
    for_ever = make_session(resource_group=short, group_choices=[short.pk, endless.pk])
    Session.objects.update(status_at=timezone.now() - timedelta(minutes=10))
    enforce_deadlines()
    assert now(one) == (Status.CANCELLED, Reason.PENDING_TIMEOUT)
    assert one.detail == sweeps.WAITED_IN_ONE
    assert [now(session)[0] for session in (several, for_ever)] == [Status.PENDING] * 2
    Session.objects.update(status_at=timezone.now() - timedelta(minutes=30))
    enforce_deadlines()
    assert now(several)[1] == Reason.PENDING_TIMEOUT
    assert several.detail == sweeps.WAITED_IN_SEVERAL
    assert now(for_ever)[0] == Status.PENDING


def test_dependents_of_what_failed_are_cancelled_in_a_chain() -> None:
    failed, unrelated = session_in(Status.ERROR), session_in(Status.TERMINATED)
    first, second, free = make_session(), make_session(), make_session()
    first.depends_on.add(unrelated, failed)
    second.depends_on.add(first)
    free.depends_on.add(unrelated)
    enforce_deadlines()
    assert [now(session)[1] for session in (first, second)] == [Reason.DEPENDENCY_FAILED] * 2
    assert first.detail == f"It depends on {failed.name}, which has ended without success."
    assert now(free)[0] == Status.PENDING


def test_of_each_kind_a_dependent_is_cancelled_in_words() -> None:
    succeeded, cancelled = session_in(Status.TERMINATED), session_in(Status.CANCELLED)
    follows, mends, runs_anyway = make_session(), make_session(), make_session()
    follows.depends_on.add(cancelled, through_defaults={"kind": "after"})
    mends.depends_on.add(succeeded, through_defaults={"kind": "after_not_ok"})
    runs_anyway.depends_on.add(succeeded, cancelled, through_defaults={"kind": "after_any"})
    enforce_deadlines()
    assert [now(session)[1] for session in (follows, mends)] == [Reason.DEPENDENCY_FAILED] * 2
    assert follows.detail == f"It was to start after {cancelled.name}, which has ended without starting."
    assert mends.detail == f"It was to start only if {succeeded.name} fails, which has succeeded."
    assert now(runs_anyway)[0] == Status.PENDING


def test_waiting_for_a_start_is_no_waiting_in_the_queue() -> None:
    group = make_group(pending_timeout=timedelta(hours=1))
    first, last = run_session(host=make_host(group=group)), make_session(resource_group=group)
    last.depends_on.add(first, through_defaults={"kind": "after"})
    Session.objects.filter(pk=last.pk).update(status_at=timezone.now() - timedelta(hours=2))
    enforce_deadlines()
    assert now(last)[0] == Status.PENDING
    SessionEvent.objects.filter(session=first).update(at=timezone.now() - timedelta(hours=2))
    enforce_deadlines()
    assert now(last)[1] == Reason.PENDING_TIMEOUT


def test_conversions_of_lost_or_silent_hosts_fail() -> None:
    lost, silent, working = (make_host(group=make_group(host_loss_grace=GRACE)) for _ in range(3))
    made = {
        host: Conversion.objects.create(
            session=run_session(host=host), host=host, state=state, reference=state + host.name
        )
        for host, state in ((lost, "SAVING"), (silent, "QUEUED"), (working, "SAVING"))
    }
    Conversion.objects.update(created_at=timezone.now() - sweeps.CONVERSION_DEADLINE - SECOND)
    lose(lost, GRACE + SECOND)
    sweeps.fail_stranded_conversions()
    found = {host: Conversion.objects.get(pk=conversion.pk) for host, conversion in made.items()}
    assert [found[host].is_active for host in (lost, silent, working)] == [False, False, True]
    assert found[lost].problem == f"Host {lost} did not come back."
    assert found[silent].problem == f"Its host {silent} has not begun in time."


def test_scheduler_is_told_of_what_returns_from_a_lost_host(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    session = session_in(Status.RUNNING, kind="batch", command="train")
    session.move_to(Status.TERMINATING, Reason.REQUEUED)
    assert session.host
    lose(session.host, timedelta(days=1))
    take_all("scheduler")
    with django_capture_on_commit_callbacks(execute=True):
        sweeps.end_on_lost_hosts()
    assert now(session) == (Status.PENDING, Reason.REQUEUED)
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


def test_a_drained_host_is_free_in_time() -> None:
    session, later = run_session(), run_session()
    Host.objects.filter(sessions=session).update(is_cordoned=True, drain_by=timezone.now() - SECOND)
    Host.objects.filter(sessions=later).update(is_cordoned=True, drain_by=timezone.now() + GRACE)
    enforce_deadlines()
    assert now(session) == (Status.TERMINATING, Reason.HOST_DRAINED)
    assert now(later)[0] == Status.RUNNING
