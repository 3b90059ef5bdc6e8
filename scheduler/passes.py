"""One scheduling pass: lock, read, plan, write the leases; then tell the others why they wait, and until when."""

from datetime import datetime
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from resources.kick import clear_kick
from scheduler import snapshot, telling
from scheduler.board import Board
from scheduler.placement import serve, tell
from scheduler.snapshot import Loaded
from scheduler.terms import Request
from sessions import services

LOCK: Final = 0x47505550  # "GPUP": the advisory lock that lets one pass at a time read and write


def run_pass() -> int:
    """Place every waiting session that fits and tell the others why they wait; return how many were placed.

    1. Clear the kick, so that whatever commits from now on asks for another pass.
    2. Wait for a pass in another scheduler to end: its leases are then in our snapshot.
    3. Read, plan, write leases, commit; then the hosts are told.
    4. Tell those who are left, in a transaction of its own: nobody's start waits for words.
    """
    clear_kick()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        now = timezone.now()
        loaded = snapshot.load(now)
        board = Board(loaded.snapshot)
        placements, left = serve(board, loaded.snapshot.queue, loaded.snapshot.rules, now)
        placed = services.assign(placements) if placements else 0
    _tell(loaded, board, left, now)
    return placed


def _tell(loaded: Loaded, board: Board, left: list[Request], now: datetime) -> None:
    with transaction.atomic():
        telling.write(loaded, telling.news(loaded, tell(board, left, now), now))
