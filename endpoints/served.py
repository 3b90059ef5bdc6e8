"""Records what a process of the data plane has served for deployments, without holding it up."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final

from django.db import Error, close_old_connections
from redis.exceptions import RedisError

from deployments import figures, tokens
from deployments.scaling import services as scaling
from messaging.background import BackgroundThread
from proxy.authorization.control_plane import ServiceFigures
from sessions.errors import RejectedError

logger = logging.getLogger(__name__)

NOTE_USE_SECONDS: Final = 30.0  # between two notes of one process that a token is in use
MAX_PENDING: Final = 10_000  # figures that wait while Redis does not answer; the oldest are dropped
PROCESS: Final = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"

_writer = BackgroundThread("served")
_waker = BackgroundThread("wake")
_lock = threading.Lock()
_pending: list[ServiceFigures] = []
_write_is_due = threading.Event()
_noted: dict[int, float] = {}  # when the use of a token was noted last, by the steady clock


def record(served: Sequence[ServiceFigures]) -> None:
    """Store the figures in the background, and that this process reports, even without figures.

    Cheap, never raises, callable from any thread or event loop.
    """
    with _lock:
        _pending.extend(served)
        del _pending[:-MAX_PENDING]
        is_due = _write_is_due.is_set()
        _write_is_due.set()
    if not is_due:
        _writer.run(_write)


def wake(deployment: str) -> None:
    """Have a replica of the deployment run, in the background. Cheap, never raises, callable from any event loop."""
    _waker.run(_wake, deployment)


def _wake(deployment: str) -> None:
    try:
        close_old_connections()
        scaling.wake(deployment)
    except (Error, RejectedError) as error:
        logger.warning("deployment %s could not be woken; requests ask for it again: %s", deployment, error)
    finally:
        close_old_connections()


def _write() -> None:
    with _lock:
        served = _pending[:]
        _pending.clear()
        _write_is_due.clear()
    try:
        figures.store(PROCESS, served)
    except (RedisError, OSError) as error:
        logger.warning("what was served could not be recorded: %s", error)
    _note_use({pk for each in served for pk in each.tokens})


def _note_use(used: set[int]) -> None:
    now = time.monotonic()
    due = {pk for pk in used if now - _noted.get(pk, float("-inf")) >= NOTE_USE_SECONDS}
    if not due:
        return
    try:
        close_old_connections()
        tokens.note_use(due)
        _noted.update(dict.fromkeys(due, now))
    except Error as error:
        logger.warning("the use of tokens could not be recorded: %s", error)
    finally:
        close_old_connections()
