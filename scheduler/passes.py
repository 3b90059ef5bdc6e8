"""A scheduling pass: lock, read, plan and write leases; then explain why and until when the others wait."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from resources.kick import clear_kick
from scheduler import snapshot, wait_status
from scheduler.state import SchedulerState
from scheduler.state_cache import StateCache
from sessions import services

logger = logging.getLogger(__name__)

LOCK: Final = 0x47505550  # "GPUP": advisory lock under which one pass at a time reads and writes
REFUSAL_PAUSE: Final = timedelta(minutes=5)  # until a session whose placement was refused is tried again
MAX_ROUNDS: Final = 3
state_cache = StateCache()


class RefusedPlacementsError(Exception):
    """The database goes on refusing placements although those that it refused before are left out."""


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which would traverse the whole cached state; it may run between passes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_pass() -> int:
    """Place every waiting session that fits and explain the rest; return the number placed.

    The kick is cleared first, so that a commit from now on asks for another pass.
    """
    clear_kick()
    state, placed, now = place()
    explain(state, now)
    return placed


def place() -> tuple[SchedulerState, int, datetime]:
    """Assign sessions to hosts; return the state after it, the number assigned, and the time of the decision.

    Waits for a pass of another scheduler to end, whose leases its snapshot then contains; reads what has changed,
    plans, writes leases and commits. The hosts are notified after the commit. A placement that the database refuses
    undoes the transaction; the pass is then made anew without it.
    """
    placed = 0
    for _ in range(MAX_ROUNDS):
        try:
            state, count, now = _place()
        except services.REFUSALS as error:
            logger.warning("a placement was refused, so all are written apart: %s", error)
            placed += _place_each()
        else:
            return state, placed + count, now
    raise RefusedPlacementsError(f"placements were refused in {MAX_ROUNDS} passes in a row")


@_gc_paused()
def _place_each() -> int:
    """As `_place`, by a state that is read anew and without what the database refuses; return the number assigned."""
    state_cache.clear()
    with transaction.atomic():
        _lock()
        now = timezone.now()
        placed, refused = services.assign_each(state_cache.take(now).serve(now), now)
        services.set_aside(refused, now + REFUSAL_PAUSE)
    return placed


def _lock() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


@_gc_paused()
def _place() -> tuple[SchedulerState, int, datetime]:
    with transaction.atomic():
        _lock()
        now = timezone.now()
        state = state_cache.take(now)
        placements = state.serve(now)
        placed = services.assign(placements, now) if placements else 0
        if state_cache.was_reloaded:
            snapshot.delete_old_changes(state.since)
    return state, placed, now


@_gc_paused()
def explain(state: SchedulerState, now: datetime) -> None:
    """Write why the remaining sessions wait, in a transaction of its own: no start waits for explanations."""
    with transaction.atomic():
        statuses = state.update_wait_statuses(now)
        wait_status.write(statuses, lambda session_id: state.waiting[session_id].request.owner_id)
    state_cache.put_back(state)
