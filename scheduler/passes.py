"""One scheduling pass: lock, read, plan, write the leases; then tell the others why they wait, and until when."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from resources.kick import clear_kick
from scheduler import snapshot, telling
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


@_uncollected()
def run_pass() -> int:
    """Place every waiting session that fits and tell the others why they wait; return how many were placed.

    1. Clear the kick, so that whatever commits from now on asks for another pass.
    2. Wait for a pass in another scheduler to end: its leases are then in our snapshot.
    3. Read what has changed, plan, write leases, commit; then the hosts are told.
    4. Tell those who are left, in a transaction of its own: nobody's start waits for words.
    """
    clear_kick()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        now = timezone.now()
        kept = memory.current(now)
        placements = kept.serve(now)
        placed = services.assign(placements) if placements else 0
        if memory.is_fresh:
            snapshot.forget_changes(kept.since)
    with transaction.atomic():
        telling.write(kept.news(now), lambda session_id: kept.waiters[session_id].request.owner_id)
    memory.keep(kept)
    return placed
