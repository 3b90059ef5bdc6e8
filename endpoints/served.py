"""Records what a process of the data plane has served for deployments, without holding it up."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from django.db import Error, close_old_connections
from redis.exceptions import RedisError

from deployments import figures
from deployments.access import tokens
from deployments.scaling import services as scaling
from deployments.usage import metering
from messaging.background import BackgroundThread
from proxy.authorization.control_plane import ServiceFigures
from proxy.budgets import NOTHING_USED, SpentBudget, TokenUse, UsageKey
from sessions.errors import RejectedError

logger = logging.getLogger(__name__)

NOTE_USE_SECONDS: Final = 30.0  # between two notes of one process that a token is in use
MAX_PENDING: Final = 10_000  # figures that wait while Redis does not answer; the oldest are dropped
PROCESS: Final = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"


class UseLedger:
    """What tokens have used and was not stored yet, and what was spent of budgets when others were stored last."""

    def __init__(self) -> None:
        self._waiting: dict[UsageKey, TokenUse] = {}
        self._under_way: dict[UsageKey, TokenUse] = {}  # being stored
        self._stored: dict[int, SpentBudget] = {}

    def add(self, uses: Mapping[UsageKey, TokenUse]) -> None:
        """Have these stored next."""
        for key, use in uses.items():
            self._waiting[key] = self._waiting.get(key, NOTHING_USED).plus(use)

    def take(self) -> dict[UsageKey, TokenUse]:
        """Return what is to be stored now; `settle` follows."""
        self._under_way, self._waiting = self._waiting, {}
        return self._under_way

    def settle(self, stored: Mapping[int, SpentBudget] | None) -> None:
        """Note what is spent now that these are stored, or None if they are not: they wait again."""
        under_way, self._under_way = self._under_way, {}
        if stored is None:
            self.add(under_way)
            return
        now = time.time()
        self._stored = {pk: each for pk, each in (self._stored | dict(stored)).items() if each.until > now}

    def spent(self) -> dict[int, SpentBudget]:
        """Return what is spent of budgets, with all that was added here."""
        return {
            pk: each.plus(self._waiting.get(pk, NOTHING_USED)).plus(self._under_way.get(pk, NOTHING_USED))
            for pk, each in self._stored.items()
        }


_writer = BackgroundThread("served")
_waker = BackgroundThread("wake")
_lock = threading.Lock()
_pending: list[ServiceFigures] = []
_write_is_due = threading.Event()
_ledger = UseLedger()
_noted: dict[int, float] = {}  # when the use of a token was noted last, by the steady clock


def record(served: Sequence[ServiceFigures]) -> None:
    """Store the figures in the background, and that this process reports, even without figures.

    Cheap, never raises, callable from any thread or event loop.
    """
    with _lock:
        _pending.extend(served)
        del _pending[:-MAX_PENDING]
    _have_written()


def meter(uses: Mapping[UsageKey, TokenUse]) -> dict[int, SpentBudget]:
    """Store what was used in the background; return what is known to be spent, with all that waits.

    Cheap, never raises, callable from any thread or event loop. What cannot be stored is kept until it can be.
    """
    with _lock:
        _ledger.add(uses)
        spent = _ledger.spent()
    if uses:
        _have_written()
    return spent


def _have_written() -> None:
    with _lock:
        is_due = _write_is_due.is_set()
        _write_is_due.set()
    if not is_due:
        _writer.run(_write)


def wake(deployment: str) -> None:
    """Have a replica of the deployment run, in the background. Cheap, never raises, callable from any event loop."""
    _waker.run(_wake, deployment)


def _wake(deployment: str) -> None:
    try:
        scaling.wake(deployment)
    except (Error, RejectedError) as error:
        logger.warning("deployment %s could not be woken; requests ask for it again: %s", deployment, error)


def _write() -> None:
    with _lock:
        served = _pending[:]
        _pending.clear()
        uses = _ledger.take()
        _write_is_due.clear()
    _store_uses(uses)  # first, since budgets wait for them, and they are kept until they are stored
    try:
        figures.store(PROCESS, served)
    except (RedisError, OSError) as error:
        logger.warning("what was served could not be recorded: %s", error)
    _note_use({pk for pk, use in uses.items() if isinstance(pk, int) and use.requests > 0})


def _store_uses(uses: Mapping[UsageKey, TokenUse]) -> None:
    stored: dict[int, SpentBudget] | None = None
    try:
        close_old_connections()
        stored = metering.store(uses)
    except Error as error:
        logger.warning("what tokens have used could not be stored, and will be: %s", error)
    finally:
        close_old_connections()
        with _lock:
            _ledger.settle(stored)


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
