"""The platform's state as a process remembers it, brought up to date by reading what has changed."""

import time
from datetime import datetime
from typing import Final

from scheduler import snapshot
from scheduler.kept import Kept

EVERYTHING_AGAIN_SECONDS: Final = 60.0  # so often all is read, whatever the notes of changes say


class Memory:
    """What this process keeps from one time to the next; at most for a minute."""

    def __init__(self) -> None:
        """Begin without anything."""
        self._kept: Kept | None = None
        self._until = 0.0
        self.is_fresh = False  # whether everything was read the last time

    def current(self, now: datetime) -> Kept:
        """Return the state as it is now, taken out of the memory: who fails with it leaves nothing wrong behind."""
        kept, self._kept = self._kept, None
        if kept is not None and time.monotonic() < self._until:
            changes = snapshot.load_changes(kept.since, kept.supposed)
            if changes is not None:
                kept.take_in(changes)
                self.is_fresh = False
                return kept
        self._until = time.monotonic() + EVERYTHING_AGAIN_SECONDS
        self.is_fresh = True
        return Kept(snapshot.load(now))

    def keep(self, kept: Kept) -> None:
        """Put the state back: all that was decided on it is written."""
        self._kept = kept

    def forget(self) -> None:
        """Read everything the next time."""
        self._kept = None
