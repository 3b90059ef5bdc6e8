"""One scheduling pass: lock, read, plan, write the leases; then tell the others why they wait, and until when."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from resources.kick import clear_kick
from scheduler import snapshot, wait_status
from scheduler.state import SchedulerState
from scheduler.state_cache import StateCache
from sessions import services

LOCK: Final = 0x47505550  # "GPUP": the advisory lock that lets one pass at a time read and write
state_cache = StateCache()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from walking through all that is remembered; it may do so between passes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_pass() -> int:
    """Place every waiting session that fits and tell the others why they wait; return how many were placed.

    The kick is cleared first, so that whatever commits from now on asks for another pass.
    """
    clear_kick()
    state, placed, now = place()
    explain(state, now)
    return placed


@_uncollected()
def place() -> tuple[SchedulerState, int, datetime]:
    """Give sessions their places; return the state after it, how many were placed, and when that was decided.

    It waits for a pass in another scheduler to end, whose leases are then in our snapshot; reads what has changed,
    plans, writes leases and commits. Then the hosts are told.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        now = timezone.now()
        state = state_cache.take(now)
        placements = state.serve(now)
        placed = services.assign(placements) if placements else 0
        if state_cache.was_reloaded:
            snapshot.forget_changes(state.since)
    return state, placed, now


@_uncollected()
def explain(state: SchedulerState, now: datetime) -> None:
    """Tell those who are left why they wait, in a transaction of its own: nobody's start waits for words."""
    with transaction.atomic():
        wait_status.write(state.changed_statuses(now), lambda session_id: state.waiting[session_id].request.owner_id)
    state_cache.put_back(state)
