"""The time as all processes agree on it: by PostgreSQL's clock, where this machine's is wrong.

Clocks of hosts may be minutes or hours apart. What one process writes as a time others compare with theirs, or with
PostgreSQL's, so each reads that once per connection (`gpuplatform/database`) and counts on by its monotonic clock.
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

    def note(self, database_time: datetime, asked_at: float) -> None:
        """Note what PostgreSQL has returned as its time to a question of that moment of the monotonic clock."""
        now = time.monotonic()
        if self._read is None or now - asked_at <= MAX_READ_SECONDS:
            self._read = database_time, (asked_at + now) / 2

    def now(self) -> datetime:
        """Return the time, which is this machine's within MAX_DIFFERENCE of PostgreSQL's."""
        mine = timezone.now()
        if self._read is None:
            return mine
        database_time, read_at = self._read
        shared = database_time + timedelta(seconds=time.monotonic() - read_at)
        return mine if abs(mine - shared) <= MAX_DIFFERENCE else shared


shared_clock: Final = SharedClock()


def now() -> datetime:
    """Return the time by the shared clock: for all that is stored, or compared with what others have stored."""
    return shared_clock.now()
