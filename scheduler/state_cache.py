"""Cache of the scheduler state in a process, brought up to date by reading what has changed."""

import time
from datetime import datetime
from typing import Final

from scheduler import snapshot
from scheduler.state import SchedulerState

FULL_RELOAD_SECONDS: Final = 60.0  # interval at which everything is read again, whatever the change notes say


class StateCache:
    """Scheduler state between two uses in this process, for at most `FULL_RELOAD_SECONDS` since it was read in full."""

    def __init__(self) -> None:
        """Begin empty."""
        self._state: SchedulerState | None = None
        self._expires_at = 0.0  # by the monotonic clock
        self.was_reloaded = False  # whether the last `take` read everything

    def take(self, now: datetime) -> SchedulerState:
        """Take the state out of the cache, brought up to date; a caller that fails thereby leaves the cache empty."""
        state, self._state = self._state, None
        if state is not None and time.monotonic() < self._expires_at:
            changes = snapshot.load_changes(state.since, state.unconfirmed, state.offered, is_fair=state.is_fair)
            if changes is not None:
                state.apply_changes(changes)
                self.was_reloaded = False
                return state
        self._expires_at = time.monotonic() + FULL_RELOAD_SECONDS
        self.was_reloaded = True
        return SchedulerState(snapshot.load(now))

    def put_back(self, state: SchedulerState) -> None:
        """Put a state back whose decisions have all been written."""
        self._state = state

    def clear(self) -> None:
        """Empty the cache: the next `take` reads everything."""
        self._state = None
