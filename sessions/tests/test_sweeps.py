"""Every state has a way out by itself: the deadlines, shortly before and just after."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from resources import clock
from resources.amounts.units import GIB, MIB
from resources.clock import SharedClock
from resources.models import Host, HostStatus
from scheduler.cycle.passes import run_pass
from sessions.launching.services import LaunchRequest, submit
from sessions.lifecycle import IN_CONTAINER, Reason, Status
from sessions.models import Conversion, Lease, Session
from sessions.sweeps import CLAIM_DEADLINE, PREPARE_DEADLINE, enforce_deadlines
from tests.factories import (
    make_group,
    make_host,
    make_image,
    make_policy,
    make_session,
    make_user,
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
