"""Resource groups have passes of their own: the trouble of one delays no other, and limits hold across all of them."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from resources.models import Host
from scheduler import tasks
from scheduler.core.types import Placement
from scheduler.cycle import passes, shared_limits
from scheduler.cycle.threads import GroupCycles
from scheduler.state.scheduler_state import SchedulerState
from sessions.lifecycle import Reason, Status
from sessions.limits import locks as capacity_locks
from sessions.models import Session
from tests.factories import make_host, make_policy, make_project, make_session, make_user
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)


def is_in(session: Session, status: Status) -> Callable[[], bool]:
    return lambda: Session.objects.filter(pk=session.pk, status=status).exists()


def waiting_on(host: Host) -> Session:
    return make_session(resource_group=host.group)


def test_a_group_that_is_held_up_delays_no_other() -> None:
    held, free = waiting_on(make_host()), waiting_on(make_host())
    has_lock, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [capacity_locks.GROUP_LOCK, held.resource_group_id])
            has_lock.set()
            assert may_end.wait(SECONDS)
        connection.close()

    with ThreadPoolExecutor(1) as threads:
        holder = threads.submit(hold)
        assert has_lock.wait(SECONDS)
        try:
            tasks.run_pass()
            until(is_in(free, Status.SCHEDULED))
            later = make_session(resource_group=free.resource_group)
            tasks.run_pass()  # although a pass is stuck
            until(is_in(later, Status.SCHEDULED))
            assert is_in(held, Status.PENDING)()
        finally:
            may_end.set()
        holder.result(SECONDS)
        until(is_in(held, Status.SCHEDULED))
    tasks.group_cycles().end()
    tasks.group_cycles.cache_clear()


def test_a_group_whose_pass_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = waiting_on(make_host()), waiting_on(make_host())
    serve = SchedulerState.serve

    def fail(state: SchedulerState, *arguments: object) -> list[Placement]:
        if broken.pk in state.waiting:
            raise ArithmeticError("a fault of ours")
        return serve(state, *arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(SchedulerState, "serve", fail)
    with pytest.raises(ArithmeticError):
        passes.run_pass()
    assert (is_in(broken, Status.PENDING)(), is_in(sound, Status.SCHEDULED)()) == (True, True)


@pytest.mark.parametrize("whose", [Reason.USER_LIMIT, Reason.PROJECT_LIMIT])
def test_a_limit_holds_across_groups_at_the_same_time(whose: Reason, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passes have each planned the one session that the user, or the members of the project, may have."""
    policy, owners, project = make_policy(max_sessions=1), [make_user(), make_user()], None
    if whose == Reason.USER_LIMIT:
        owners = [make_user(policy=policy)] * 2
    else:
        project = make_project(*owners, policy=policy)
    sessions = [make_session(owner=owner, project=project, resource_group=make_host().group) for owner in owners]
    hold, both_have_planned = shared_limits.hold, threading.Barrier(2, timeout=SECONDS)
    first_time = threading.local()

    def hold_together(state: SchedulerState, placements: Sequence[Placement]) -> None:
        if not getattr(first_time, "is_over", False):
            first_time.is_over = True
            both_have_planned.wait()
        hold(state, placements)

    monkeypatch.setattr(shared_limits, "hold", hold_together)

    def run(session: Session) -> int:
        try:
            return passes.run_group_pass(session.resource_group_id)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(run, sessions)) == [0, 1]
    waiting = Session.objects.get(status=Status.PENDING)
    assert waiting.reason == whose
    monkeypatch.undo()
    Session.objects.get(status=Status.SCHEDULED).move_to(Status.CANCELLED, Reason.USER_REQUEST)
    assert passes.run_pass() == 1  # it counted there, and counts no more


def test_a_request_during_a_pass_makes_one_more() -> None:
    begun, may_end, runs = threading.Semaphore(0), threading.Semaphore(0), []

    def run(group_id: int) -> None:
        runs.append(group_id)
        begun.release()
        assert may_end.acquire(timeout=SECONDS)
        if len(runs) == 1:
            raise ArithmeticError("a fault of ours")

    group_cycles = GroupCycles(run)
    group_cycles.request([1])
    assert begun.acquire(timeout=SECONDS)
    for _ in range(3):
        group_cycles.request([1])
    may_end.release(2)
    group_cycles.end()
    assert runs == [1, 1]
