"""Checks told in bounded time, and at most once a second whoever asks how often: do PostgreSQL and Redis respond?"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

import psycopg
from django.conf import settings
from django.db import connection
from django.utils.crypto import salted_hmac

from operations.database.silence import WatchedConnection
from operations.health import redis_probe

TIMEOUT_SECONDS: Final = 1.5
MAX_AGE_SECONDS: Final = 1.0
CONNECT_SECONDS: Final = 2  # libpq's least

Result = TypeVar("Result")


class Probe(Generic[Result]):
    """A check in a thread of its own, since a server that is frozen blocks it."""

    def __init__(self, check: Callable[[], Result], late: Result, max_age_seconds: float = MAX_AGE_SECONDS) -> None:
        """`late` is the result of a check that takes too long."""
        self._check = check
        self._late = late
        self._max_age_seconds = max_age_seconds
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="probe")
        self._checked_at = float("-inf")
        self._result = late

    async def result(self) -> Result:
        """Return the result of a check that is at most `max_age_seconds` old, `late` after TIMEOUT_SECONDS."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._executor, self._latest)
        except TimeoutError:
            return self._late

    def _latest(self) -> Result:
        if time.monotonic() - self._checked_at > self._max_age_seconds:
            self._result = self._check()
            self._checked_at = time.monotonic()
        return self._result


def installation() -> str:
    """Return what tells this installation's processes from those of another; tells nothing else."""
    return salted_hmac("gpuplatform.installation", "").hexdigest()[:16]


def database_responds() -> bool:
    """Return whether a new connection to PostgreSQL answers; one of the pool could wait for others."""
    parameters = {**connection.get_connection_params(), "connect_timeout": CONNECT_SECONDS}
    parameters.pop("pool", None)
    try:
        with WatchedConnection.connect(**parameters) as session:  # a thread that waits for ever would check no more
            session.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def redis_responds() -> bool:
    """Return whether Redis answers."""
    return redis_probe.version(settings.CHANNEL_REDIS_URL) is not None


database: Final = Probe(database_responds, False)
redis: Final = Probe(redis_responds, False)
