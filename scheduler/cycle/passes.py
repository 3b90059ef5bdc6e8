"""A scheduling pass over a resource group: lock, read, plan and write leases; then explain why the others wait.

Each group has a lock, a state and passes of its own, so that none waits for another. What groups share are the limits
of users and projects: before a pass writes, it locks those whose limits apply, and checks them against what is held by
then.
"""

import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.db import transaction

from resources import clock, heartbeats
from resources.kick import clear_kick, kick_scheduler
from resources.models import ResourceGroup
from scheduler.cycle import preemption, shared_limits
from scheduler.cycle.forecasts import Forecasters
from scheduler.snapshot import queue as snapshot
from scheduler.state import wait_status
from scheduler.state.cache import GroupCaches
from scheduler.state.scheduler_state import SchedulerState
from sessions import notify
from sessions.estimates import starts as start_estimates
from sessions.launching import services
from sessions.limits import locks as capacity_locks

logger = logging.getLogger(__name__)

REFUSAL_PAUSE: Final = timedelta(minutes=5)  # until a session whose placement was refused is tried again
MAX_ROUNDS: Final = 3
caches = GroupCaches()
forecasters = Forecasters()
_gc_lock = threading.Lock()
_running_cycles = 0


class RefusedPlacementsError(Exception):
    """The database goes on refusing placements although those that it refused before are left out."""


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which would traverse the whole cached state; it may run between passes."""
    global _running_cycles  # the collector is one for all threads, and so is their count
    with _gc_lock:
        _running_cycles += 1
        gc.disable()
    try:
        yield
    finally:
        with _gc_lock:
            _running_cycles -= 1
            if not _running_cycles:
                gc.enable()


def run_pass() -> int:
    """Make a pass over every group, one after the other; return the number of sessions placed.

    The kick is cleared first, so that a commit from now on asks for another pass. A group that fails does not keep the
    others from theirs: its error is raised after them.
    """
    clear_kick()
    placed, errors = 0, []
    for group_id in group_ids():
        try:
            placed += run_group_pass(group_id)
        except Exception as error:
            logger.exception("the pass over group %d failed", group_id)
            errors.append(error)
    if errors:
        raise errors[0]
    return placed


def group_ids() -> list[int]:
    """Return the ids of all groups; inactive ones have waiting sessions to be explained, too."""
    return list(ResourceGroup.objects.order_by("pk").values_list("pk", flat=True))


def run_group_pass(group_id: int) -> int:
    """Place every waiting session of the group that fits and explain the rest; return the number placed."""
    state, placed, now = place(group_id)
    explain(group_id, state, now)
    heartbeats.note(heartbeats.pass_of(group_id))
    return placed


def place(group_id: int) -> tuple[SchedulerState, int, datetime]:
    """Assign sessions to hosts; return the state after it, the number assigned, and the time of the decision.

    Waits for a pass over this group by another scheduler to end, whose leases its snapshot then contains; reads what
    has changed, plans, writes leases and commits. The hosts are notified after the commit. A placement that the
    database refuses, or that another group's pass has left no limit for, undoes the transaction; the pass is then made
    anew.
    """
    placed, is_alone = 0, False
    for _ in range(MAX_ROUNDS):
        try:
            state, count, now = _place(group_id, is_alone=is_alone)
        except shared_limits.ExceededLimitError as error:
            logger.info("group %d: the pass is made anew: %s", group_id, error)
            is_alone = True
        except services.REFUSALS as error:
            logger.warning("a placement was refused, so all are written apart: %s", error)
            placed += _place_each(group_id)
        else:
            return state, placed + count, now
    raise RefusedPlacementsError(f"placements were refused in {MAX_ROUNDS} passes in a row")


@_gc_paused()
def _place(group_id: int, *, is_alone: bool) -> tuple[SchedulerState, int, datetime]:
    cache = caches.of(group_id)
    with transaction.atomic():
        capacity_locks.hold_group(group_id)
        if is_alone:
            capacity_locks.hold_all_limits()
        now = clock.now()
        state = cache.take(now)
        placements = state.serve(now, partial(preemption.grace_of, group_id))
        if placements:
            shared_limits.hold(state, placements)
        placed = services.assign(placements, now) if placements else 0
        estimates = state.likely.start(group_id, (placement.session_id for placement in placements), now)
        if estimates or state.told_elsewhere:
            start_estimates.note_starts([*estimates, *state.told_elsewhere], now)
        preemption.settle(group_id, state, now)
        if cache.may_tidy():
            snapshot.delete_old_changes(state.since)
    return state, placed, now


@_gc_paused()
def _place_each(group_id: int) -> int:
    """As `_place`, by a state that is read anew and without what the database refuses; return the number assigned."""
    cache = caches.of(group_id)
    cache.clear()
    with transaction.atomic():
        capacity_locks.hold_group(group_id)
        capacity_locks.hold_all_limits()
        now = clock.now()
        placements = cache.take(now).serve(now, partial(preemption.grace_of, group_id))
        placed, refused = services.assign_each(placements, now)
        services.set_aside(refused, now + REFUSAL_PAUSE)
    return placed


@_gc_paused()
def explain(group_id: int, state: SchedulerState, now: datetime) -> None:
    """Write why the remaining sessions wait, in a transaction of its own: no start waits for explanations.

    Of a long queue, a part: then it asks for another pass, which first starts what can start by then.
    """
    found = forecasters.of(group_id).starts(state.incremental, now, state.likely.past)
    with transaction.atomic():
        statuses = state.update_wait_statuses(now, found and found.latest)
        if statuses:
            with snapshot.noted(state.own_writes):
                wait_status.write(statuses, state.waiting, group_id)
        waiting, running = state.incremental.requests, state.incremental.cluster.running_count
        if found and (estimates := state.likely.tell(group_id, waiting, found.likely, found.latest, now, running)):
            start_estimates.tell(group_id, estimates, now)
            requests = [state.waiting[each.session_id].request for each in estimates]
            notify.sessions_changed((request.id, request.owner_id, request.project_id) for request in requests)
    caches.of(group_id).put_back(state)
    if state.is_behind:
        kick_scheduler()
