"""The latest end that a placement was planned with never moves back, however long the start takes.

Seen to fail under these faults, planted in the product: limits count from the start alone; a session that is being
stopped ends a minute after that, however late; a requeued session keeps its deadline; sessions that never started are
not ended.
"""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from resources.models import Host
from scheduler.cycle import passes
from scheduler.snapshot import queue as snapshot
from sessions.lifecycle import Reason, Status
from sessions.models import STOP_DURATION, Session, end_expression
from sessions.sweeps import enforce_deadlines
from tests.factories import make_group, make_host, make_policy, make_session, make_user

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def placed() -> Session:
    """A session of an hour that was placed just now, in a group that allows ten minutes for a start."""
    host = make_host(group=make_group(start_allowance=10 * MINUTE))
    session = make_session(resource_group=host.group, time_limit=HOUR)
    passes.run_pass()
    session.refresh_from_db()
    return session


def planned_end() -> datetime | None:
    """Return the latest end as the scheduler reads it."""
    (running,) = snapshot.load(timezone.now()).snapshot.running
    return running.ends_at


def age(session: Session, by: timedelta) -> None:
    """Let `by` have passed since the last change of the session."""
    times = ("status_at", "start_by", "started_at")
    moved = {name: value - by for name in times if (value := getattr(session, name))}
    Session.objects.filter(pk=session.pk).update(**moved)
    session.refresh_from_db()


def test_the_pass_and_the_database_plan_the_same_end(placed: Session) -> None:
    state = passes.caches.of(placed.resource_group_id).take(timezone.now())
    ((_, _, decided),) = state.incremental.cluster.groups[placed.resource_group_id].ends
    assert placed.start_by == placed.status_at + 10 * MINUTE
    assert decided.ends_at == planned_end() == placed.status_at + 10 * MINUTE + HOUR + STOP_DURATION


@pytest.mark.parametrize(("pulling", "late"), [(4, 0), (25, 15)])
def test_a_long_pull_is_charged_to_the_time_limit(placed: Session, pulling: int, late: int) -> None:
    planned, begun = planned_end(), timezone.now()
    placed.move_to(Status.PREPARING, Reason.CLAIMED)
    assert planned_end() == planned
    age(placed, pulling * MINUTE)
    placed.move_to(Status.RUNNING, Reason.STARTED)
    placed = Session.objects.select_related("owner__policy", "host").get()
    assert placed.started_at
    assert placed.start_by
    assert placed.ends_at == Session.objects.values_list(end_expression(), flat=True).get()
    assert placed.ends_at == (placed.start_by if late else placed.started_at) + HOUR
    end = planned_end()
    assert end is not None
    assert planned is not None
    assert end + pulling * MINUTE <= planned + (timezone.now() - begun)
    age(placed, HOUR - late * MINUTE + MINUTE)
    enforce_deadlines()
    placed.refresh_from_db()
    assert (placed.status, placed.reason) == (Status.TERMINATING, Reason.TIME_LIMIT)


def test_stopping_late_does_not_move_the_planned_end(placed: Session) -> None:
    for status, reason in ((Status.PREPARING, Reason.CLAIMED), (Status.RUNNING, Reason.STARTED)):
        placed.move_to(status, reason)
    age(placed, HOUR + MINUTE / 2)
    planned = planned_end()
    placed.move_to(Status.TERMINATING, Reason.TIME_LIMIT)
    assert planned_end() == planned
    Session.objects.update(time_limit=None)
    assert planned_end() == placed.status_at + STOP_DURATION


def test_a_start_that_outlasts_its_limit_is_given_up(placed: Session) -> None:
    placed.move_to(Status.PREPARING, Reason.CLAIMED)
    Session.objects.update(time_limit=5 * MINUTE)
    age(placed, 16 * MINUTE)
    enforce_deadlines()
    assert placed.events.filter(reason=Reason.TIME_LIMIT, detail="Its start took longer than its time limit.").exists()


def test_a_requeued_session_gets_a_new_deadline(placed: Session) -> None:
    age(placed, HOUR)
    enforce_deadlines()
    placed.refresh_from_db()
    assert (placed.status, placed.start_by) == (Status.PENDING, None)
    passes.run_pass()
    placed.refresh_from_db()
    assert placed.start_by == placed.status_at + 10 * MINUTE


def test_lifetimes_count_from_the_deadline_as_well() -> None:
    host = make_host()
    owner = make_user(policy=make_policy(max_lifetime=HOUR))
    session = make_session(resource_group=host.group, owner=owner)
    passes.run_pass()
    session.refresh_from_db()
    age(session, 30 * MINUTE)
    session.move_to(Status.PREPARING, Reason.CLAIMED)
    session.move_to(Status.RUNNING, Reason.STARTED)
    age(session, 36 * MINUTE)
    enforce_deadlines()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.LIFETIME)


def test_a_host_whose_session_cannot_be_killed_is_left_aside() -> None:
    group = make_group()
    stuck_host, busy_host = (Host.objects.get(pk=make_host(group=group, cpu=2).pk) for _ in range(2))
    stuck = make_session(resource_group=group, cpu=2, time_limit=HOUR)
    passes.run_pass()
    busy = make_session(resource_group=group, cpu=2, time_limit=3 * HOUR)
    passes.run_pass()
    for session in (stuck, busy):
        session.refresh_from_db()
        session.move_to(Status.PREPARING, Reason.CLAIMED)
        session.move_to(Status.RUNNING, Reason.STARTED)
    stuck.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    age(stuck, 30 * MINUTE)
    head = make_session(resource_group=group, cpu=2)
    passes.run_pass()
    head.refresh_from_db()
    busy = Session.objects.select_related("owner__policy", "host").get(pk=busy.pk)
    assert {stuck.host, busy.host} == {stuck_host, busy_host}
    assert head.eta is not None
    assert busy.ends_at is not None
    assert head.eta >= busy.ends_at
