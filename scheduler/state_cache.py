"""The platform's state as a process remembers it, brought up to date by reading what has changed."""

import time
from datetime import datetime
from typing import Final

from scheduler import snapshot
from scheduler.state import SchedulerState

FULL_RELOAD_SECONDS: Final = 60.0  # so often all is read, whatever the notes of changes say


class StateCache:
    """What this process keeps from one time to the next; at most for a minute."""

    def __init__(self) -> None:
        """Begin without anything."""
        self._kept: SchedulerState | None = None
        self._until = 0.0
        self.was_reloaded = False  # whether everything was read the last time

    def take(self, now: datetime) -> SchedulerState:
        """Return the state as it is now, taken out of the memory: who fails with it leaves nothing wrong behind."""
        state, self._kept = self._kept, None
        if state is not None and time.monotonic() < self._until:
            changes = snapshot.load_changes(state.since, state.unconfirmed)
            if changes is not None:
                state.apply_changes(changes)
                self.was_reloaded = False
                return state
        self._until = time.monotonic() + FULL_RELOAD_SECONDS
        self.was_reloaded = True
        return SchedulerState(snapshot.load(now))

    def put_back(self, state: SchedulerState) -> None:
        """Put the state back: all that was decided on it is written."""
        self._kept = state

    def clear(self) -> None:
        """Read everything the next time."""
        self._kept = None
