"""A clock that is set: of the processes, each of which may be wrong, and of PostgreSQL, which stands for the time."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest import mock

from django.apps import apps
from django.db import connection
from django.utils import timezone

from hostworker.agent import worker
from operations.database import base as database
from operations.database import silence as database_silence
from resources import clock as shared
from scheduler.state import cache as state_cache

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
TICK: Final = timedelta(microseconds=1)
NO_TIME: Final = timedelta(0)
# A function of the search path's first schema comes before that of pg_catalog, where that is named as the last.
_FUNCTIONS: Final = ("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp")
_INSTALL: Final = "DROP SCHEMA IF EXISTS virtual CASCADE; CREATE SCHEMA virtual;" + "".join(
    f"CREATE FUNCTION virtual.{name}() RETURNS timestamptz LANGUAGE sql STABLE"
    " AS $$ SELECT current_setting('virtual.now')::timestamptz $$;"
    for name in _FUNCTIONS
)
_NOTES_CLOCK: Final = "ALTER TABLE compute_change ALTER at SET DEFAULT {}.clock_timestamp()"


class VirtualClock:
    """The time of all processes of a world."""

    def __init__(self) -> None:
        """Begin at START."""
        self.now = START
        self.skew = NO_TIME  # by which the clock of the process that acts now is ahead
        self._ticks = 0

    def wall(self) -> datetime:
        """Return what the process that acts takes for the time; no two calls return the same."""
        self._ticks += 1
        return self.now + self.skew + self._ticks * TICK

    def monotonic(self) -> float:
        """Return seconds that only grow, as time.monotonic."""
        return (self.now - START).total_seconds()

    def time(self) -> float:
        """Return Unix seconds, as time.time."""
        return self.wall().timestamp()

    def set(self, now: datetime) -> None:
        """Set it, in PostgreSQL too."""
        with connection.cursor() as cursor:  # which may read PostgreSQL's clock, so it is set before ours
            cursor.execute("SELECT set_config('virtual.now', %s, false)", [now.isoformat()])
        self.now, self._ticks = now, 0


@contextmanager
def virtual_time(clock: VirtualClock) -> Iterator[None]:
    """Have this process, and its connection to PostgreSQL, go by the clock until the block ends."""
    with connection.cursor() as cursor:
        cursor.execute(_INSTALL)
        cursor.execute(_NOTES_CLOCK.format("virtual"))
        cursor.execute("SET search_path = virtual, public, pg_catalog")
    with ExitStack() as stack:
        defaults = [each for model in apps.get_models() for each in model._meta.fields if each.default is timezone.now]
        for field in defaults:
            stack.enter_context(mock.patch.object(field, "_get_default", clock.wall))
        stack.enter_context(mock.patch.object(timezone, "now", clock.wall))
        stack.enter_context(mock.patch.object(shared.shared_clock, "_read", (START, 0.0)))
        stack.enter_context(mock.patch.object(shared.shared_clock, "_offset", START.timestamp()))
        for module in (worker, state_cache, shared, database):
            stack.enter_context(mock.patch.object(module, "time", clock))
        # By real seconds, a busy machine would have a silent server, and a story go otherwise when it is told again.
        stack.enter_context(mock.patch.object(database_silence, "SILENCE_SECONDS", math.inf))
        stack.enter_context(mock.patch.object(database, "_read_clock", _read_by(connection.connection)))
        clock.set(START)
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("RESET search_path")
                cursor.execute(_NOTES_CLOCK.format("pg_catalog"))
                cursor.execute("DROP SCHEMA virtual CASCADE")


def _read_by(own: Any) -> Callable[[Any], None]:
    """Return what reads PostgreSQL's clock by this connection alone: those that the pool makes have the real one."""
    read = database._read_clock
    return lambda made: read(made) if made is own else None
