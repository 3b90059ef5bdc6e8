"""The time as all processes agree on it: by PostgreSQL's clock, where this machine's is wrong.

Clocks of hosts may be minutes or hours apart. What one process writes as a time others compare with theirs, or with
PostgreSQL's, so each reads that once per connection (`gpuplatform/database`) and counts on by its monotonic clock; and
again where this machine's clock was set since, or the machine was suspended, in which time no monotonic clock counts.
"""

import time
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

MAX_DIFFERENCE: Final = timedelta(seconds=2)  # within which this machine's clock counts as right
MAX_READ_SECONDS: Final = 1.0  # a slower reading is worth less than the one before


class SharedClock:
    """What this process knows of PostgreSQL's clock."""

    def __init__(self) -> None:
        """Begin with this machine's clock."""
        self._read: tuple[datetime, float] | None = None  # PostgreSQL's time, and the monotonic clock then
        self._offset = 0.0  # seconds by which this machine's clock was ahead of the monotonic one then

    def note(self, database_time: datetime, asked_at: float) -> None:
        """Note what PostgreSQL has returned as its time to a question of that moment of the monotonic clock."""
        now = time.monotonic()
        if self._read is None or now - asked_at <= MAX_READ_SECONDS or self.is_doubtful():
            self._read, self._offset = (database_time, (asked_at + now) / 2), _offset()

    def is_doubtful(self) -> bool:
        """Return whether PostgreSQL's clock should be read again: this machine's was set, or it was suspended."""
        return self._read is not None and abs(_offset() - self._offset) > MAX_DIFFERENCE.total_seconds()

    def now(self) -> datetime:
        """Return the time, which is this machine's within MAX_DIFFERENCE of PostgreSQL's."""
        mine = timezone.now()
        if self._read is None:
            return mine
        database_time, read_at = self._read
        shared = database_time + timedelta(seconds=time.monotonic() - read_at)
        return mine if abs(mine - shared) <= MAX_DIFFERENCE else shared


def _offset() -> float:
    return time.time() - time.monotonic()


shared_clock: Final = SharedClock()


def now() -> datetime:
    """Return the time by the shared clock: for all that is stored, or compared with what others have stored."""
    return shared_clock.now()
