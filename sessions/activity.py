"""When each session was last used: by input in a terminal or over SSH, by requests to its apps, by busy kernels.

Whoever sees a use calls `used`, as often as it likes; what reaches the database is one write per session and
COALESCE_SECONDS, so the time kept may be older than the last use by as much.
"""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

COALESCE_SECONDS: Final = 30.0
MOST_REMEMBERED: Final = 10_000  # sessions; beyond it all are forgotten, which costs some writes

_writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="activity")
_lock = threading.Lock()
_written: dict[str, float] = {}  # when each session's use was last written, by the steady clock


def used(session_id: str) -> None:
    """Note that a user uses the session now. Cheap, never raises, callable from any thread or loop."""
    now = time.monotonic()
    if now - _written.get(session_id, -COALESCE_SECONDS) < COALESCE_SECONDS:
        return
    with _lock:
        if len(_written) >= MOST_REMEMBERED:
            _written.clear()
        _written[session_id] = now
    _writer.submit(_write, session_id)


def _write(session_id: str) -> None:
    try:
        close_old_connections()
        Session.objects.filter(pk=session_id, status=Status.RUNNING).update(last_activity_at=timezone.now())
    except DatabaseError as error:
        _written.pop(session_id, None)
        logger.warning("session %s: its use could not be noted: %s", session_id, error)
    finally:
        close_old_connections()
