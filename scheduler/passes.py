"""One scheduling pass: lock, read, plan, write the leases; then tell the others why they wait, and until when."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from resources.kick import clear_kick
from scheduler import snapshot, telling
from scheduler.kept import Kept
from scheduler.memory import Memory
from sessions import services

LOCK: Final = 0x47505550  # "GPUP": the advisory lock that lets one pass at a time read and write
memory = Memory()


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
    kept, placed, now = place()
    tell(kept, now)
    return placed


@_uncollected()
def place() -> tuple[Kept, int, datetime]:
    """Give sessions their places; return the state after it, how many were placed, and when that was decided.

    It waits for a pass in another scheduler to end, whose leases are then in our snapshot; reads what has changed,
    plans, writes leases and commits. Then the hosts are told.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        now = timezone.now()
        kept = memory.current(now)
        placements = kept.serve(now)
        placed = services.assign(placements) if placements else 0
        if memory.is_fresh:
            snapshot.forget_changes(kept.since)
    return kept, placed, now


@_uncollected()
def tell(kept: Kept, now: datetime) -> None:
    """Tell those who are left why they wait, in a transaction of its own: nobody's start waits for words."""
    with transaction.atomic():
        telling.write(kept.news(now), lambda session_id: kept.waiters[session_id].request.owner_id)
    memory.keep(kept)
