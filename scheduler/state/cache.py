"""Cache of the scheduler state in a process, brought up to date by reading what has changed."""

import gc
import time
from datetime import datetime
from typing import Final

from scheduler.snapshot import queue as snapshot
from scheduler.state.scheduler_state import SchedulerState

FULL_RELOAD_SECONDS: Final = 3600.0  # interval at which everything is read again, whatever the change notes say
MAX_GAP_SECONDS: Final = 240.0  # between two uses; after longer, notes may have been deleted, and everything is read
MIN_FROZEN_SIZE: Final = 10_000  # sessions in a state that the garbage collector leaves alone until it is read again
TIDY_SECONDS: Final = 60.0  # interval at which old notes are deleted


class StateCache:
    """Scheduler state between two uses in this process, for at most `FULL_RELOAD_SECONDS` since it was read in full.

    Of one resource group where `group_id` says which: its hosts and those who wait for it; what sessions hold
    elsewhere counts against limits alone.
    """

    def __init__(self, group_id: int | None = None) -> None:
        """Begin empty."""
        self._group_id = group_id
        self._state: SchedulerState | None = None
        self._is_frozen = False
        self._expires_at = self._stale_at = self._tidy_at = 0.0  # by the monotonic clock

    def take(self, now: datetime) -> SchedulerState:
        """Take the state out of the cache, brought up to date; a caller that fails thereby leaves the cache empty."""
        state, self._state = self._state, None
        clock = time.monotonic()
        is_usable = clock < min(self._expires_at, self._stale_at)
        self._stale_at = clock + MAX_GAP_SECONDS
        if state is not None and is_usable:
            changes = snapshot.load_changes(
                state.since,
                state.unconfirmed,
                state.offered,
                own=state.own_writes,
                is_fair=state.is_fair,
                group_id=self._group_id,
            )
            if changes is not None:
                state.apply_changes(changes, now)
                return state
        self._expires_at = clock + FULL_RELOAD_SECONDS
        del state
        return self._load(now)

    def _load(self, now: datetime) -> SchedulerState:
        """Read everything; a large state is exempt from garbage collection, which would take half a second of it."""
        if self._is_frozen:
            gc.unfreeze()
            gc.collect()
        state = SchedulerState(snapshot.load(now, self._group_id))
        self._is_frozen = state.size >= MIN_FROZEN_SIZE
        if self._is_frozen:
            gc.freeze()
        return state

    def may_tidy(self) -> bool:
        """Return whether it is time to delete old notes; then not again for `TIDY_SECONDS`."""
        clock = time.monotonic()
        is_time = clock >= self._tidy_at
        if is_time:
            self._tidy_at = clock + TIDY_SECONDS
        return is_time

    def put_back(self, state: SchedulerState) -> None:
        """Put a state back whose decisions have all been written."""
        self._state = state

    def clear(self) -> None:
        """Empty the cache: the next `take` reads everything."""
        self._state = None
        self._tidy_at = 0.0


class GroupCaches:
    """The caches of a process by resource group, made as they are asked for."""

    def __init__(self) -> None:
        """Begin empty."""
        self._caches: dict[int, StateCache] = {}

    def of(self, group_id: int) -> StateCache:
        """Return the cache of a group, the same one each time; thread-safe."""
        return self._caches.setdefault(group_id, StateCache(group_id))

    def clear(self) -> None:
        """Empty them all."""
        self._caches.clear()
