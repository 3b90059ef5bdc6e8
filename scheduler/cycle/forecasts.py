"""Estimates of starts outside of the pass: where many sessions wait or run, a forked process computes them.

The child works on the state as it was at the fork, by copy on write, as Redis saves its data: nothing is copied or read
again, and no pass waits for it. It touches no connection, writes its result to a pipe, and ends.
"""

import gc
import logging
import os
import pickle
import select
import signal
import threading
import time
from datetime import datetime
from typing import BinaryIO, Final, NamedTuple

from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.core.waiting.run_times import RunTimes

logger = logging.getLogger(__name__)

MAX_INLINE_REQUESTS = 300  # up to so many waiting sessions are estimated in the pass: that takes milliseconds
MAX_INLINE_PAIRS = 100_000  # and up to so many pairs of a waiting and a running one
MAX_SECONDS = 60  # of a process; the count of a forecast's steps ends it long before, unless something is wrong
MIN_INTERVAL_SECONDS: Final = 10.0  # between the starts of two processes
NICENESS: Final = 10


class Forecast(NamedTuple):
    """Starts by session id: the latest by time limits, and the likely ones by what is known of the past."""

    latest: dict[str, StartEstimate]
    likely: dict[str, datetime]


_forking = threading.Lock()  # else a child has the other's end of a pipe too, and its reader waits for both


class _Child(NamedTuple):
    """A process that computes estimates, and where its result comes from."""

    pid: int
    result: BinaryIO


class Forecaster:
    """Estimates of the sessions that wait for a resource group, of a process that runs passes over it."""

    def __init__(self) -> None:
        """Begin without estimates."""
        self._child: _Child | None = None
        self._begun_at = float("-inf")  # by the monotonic clock

    def starts(self, state: IncrementalState, now: datetime, past: RunTimes) -> Forecast | None:
        """Return new estimates, of this state or of a recent one; None if there are none yet. Does not wait for any."""
        if len(state.requests) <= MAX_INLINE_REQUESTS and state.pairs <= MAX_INLINE_PAIRS:
            return _forecast(state, now, past)
        found = self._collect()
        if self._child is None and time.monotonic() - self._begun_at >= MIN_INTERVAL_SECONDS:
            self._begun_at = time.monotonic()
            self._child = _fork(state, now, past)
        return found

    def _collect(self) -> Forecast | None:
        """Return the result of the child if it has one; a child that failed is logged and forgotten."""
        child = self._child
        if child is None or not select.select([child.result], [], [], 0)[0]:
            return None
        with child.result as result:
            data = result.read()  # it has computed them: the rest arrives at once
        _, status = os.waitpid(child.pid, 0)
        self._child = None
        if status or not data:  # one that is killed may have written a part
            logger.warning("the process that computes estimates ended without any")
            return None
        found: Forecast = pickle.loads(data)  # noqa: S301  # written by a fork of this process, through its own pipe
        return found


class Forecasters:
    """Those of a process by resource group, made as they are asked for."""

    def __init__(self) -> None:
        """Begin empty."""
        self._forecasters: dict[int, Forecaster] = {}

    def of(self, group_id: int) -> Forecaster:
        """Return that of a group, the same one each time; thread-safe."""
        return self._forecasters.setdefault(group_id, Forecaster())


def _forecast(state: IncrementalState, now: datetime, past: RunTimes) -> Forecast:
    """Return the starts of the requests; without a past, those by limits are the likely ones."""
    latest = state.starts(now, LOOK_AHEAD)
    if not past:
        return Forecast(latest, {session_id: start.at for session_id, start in latest.items()})
    return Forecast(latest, state.likely_starts(now, LOOK_AHEAD, past) if state.requests else {})


def _fork(state: IncrementalState, now: datetime, past: RunTimes) -> _Child:
    """Start a process that computes the estimates of `state` as it is now."""
    with _forking:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid != 0:
            os.close(writer)
    if pid == 0:
        try:
            os.close(reader)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            signal.alarm(MAX_SECONDS)
            os.nice(NICENESS)
            gc.disable()
            data = pickle.dumps(_forecast(state, now, past))
            with os.fdopen(writer, "wb") as result:
                result.write(data)
        finally:
            os._exit(0)  # runs no finalizer: connections belong to the parent
    return _Child(pid, os.fdopen(reader, "rb"))
