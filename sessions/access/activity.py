"""Record when each session was last used: terminal or SSH input, requests to its apps, busy Jupyter kernels.

`used` may be called for every byte of input: at most one write per session and COALESCE_SECONDS reaches the database,
so the recorded time may lag by that much. Each host's worker polls the Jupyter servers of its sessions.
"""

import logging
import threading
import time
from datetime import datetime
from typing import Final

from django.db import Error
from django.db.models import Q

from messaging.background import BackgroundThread
from resources import clock
from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

COALESCE_SECONDS: Final = 30.0
MAX_REMEMBERED: Final = 10_000  # sessions; beyond it the cache is cleared, which costs some writes

_writer = BackgroundThread("activity")
_lock = threading.Lock()
_written: dict[str, float] = {}  # when each session's use was last written, by the steady clock


def used(session_id: str) -> None:
    """Record that the session is used now. Cheap, never raises, callable from any thread or event loop."""
    now = time.monotonic()
    if _is_written(session_id, now):
        return
    with _lock:
        if _is_written(session_id, now):
            return
        if len(_written) >= MAX_REMEMBERED:
            _written.clear()
        _written[session_id] = now
    _writer.run(_write, session_id)


def record(session_id: str, at: datetime) -> None:
    """Store that the running session was used at `at`, unless a later use is stored."""
    is_news = Q(last_activity_at=None) | Q(last_activity_at__lt=at)
    Session.objects.filter(is_news, pk=session_id, status=Status.RUNNING).update(last_activity_at=at)


def _is_written(session_id: str, now: float) -> bool:
    return now - _written.get(session_id, -COALESCE_SECONDS) < COALESCE_SECONDS


def _write(session_id: str) -> None:
    try:
        record(session_id, clock.now())
    except Error as error:
        _written.pop(session_id, None)
        logger.warning("session %s: its use could not be recorded: %s", session_id, error)
