"""What is due on a host, asked of the database for all kinds of work by one statement.

A thousand hosts that ask a dozen tables each, every few seconds, would be most of what the database does. So a loop
that waits for rows asks here first, and reads its tables only where there are any. The conditions are those of the
loops' own queries, and every loop runs in full now and then whatever was answered. Who sends the host a message has
changed what it was answered, so it asks anew then. To plan the statement takes ten times as long as to execute it, and
to compose it longer still, so it is composed once and prepared. It is no part of the heartbeat, which a lock on one of
the tables, as an upgrade takes, would then hold up.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import reduce, wraps
from operator import add, or_
from typing import Any, Final
from weakref import WeakValueDictionary

import psycopg
from django.db import connection
from django.db.models import Exists, QuerySet
from psycopg.sql import Literal

from folders.quotas import measure
from hostworker.agent import reconciler
from hostworker.app_processes import starter as app_starter
from hostworker.containers import cluster_networks
from hostworker.images import converter, host_images
from hostworker.replicas import replica_watch
from hostworker.storage import share_watch, storage_quota
from resources.hosts import health as host_health
from resources.hosts import services as hosts
from resources.models import Host

ASK_SECONDS: Final = 5.0  # how old an answer may be
FULL_SECONDS: Final = 60.0  # after which every kind of work counts as due

Rows = Callable[[Host], QuerySet[Any]]


class Work(Enum):
    """The kinds of work: each is due on a host while any of its functions finds rows."""

    READINESS = (hosts.unready,)
    SESSIONS = (reconciler.sessions_of,)
    CLUSTERS = (cluster_networks.placed,)
    APPS = (app_starter.starting,)
    REPLICAS = (replica_watch.probed,)
    CONVERSIONS = (converter.unfinished, converter.deleted, converter.waiting_reports)
    PULLS = (host_images.waiting_pulls,)
    PROBE = (host_health.due_probes,)
    SHARES = (share_watch.foreign_mounts,)
    MEASUREMENTS = (measure.due_on,)
    LIMITS = (storage_quota.enforced_roots,)
    QUOTAS = (storage_quota.writable_mounts,)

    def condition(self, host: Host) -> Any:
        """Return whether it is due, as a part of a query."""
        functions: tuple[Rows, ...] = self.value
        return reduce(or_, (Exists(rows(host)) for rows in functions))


_by_host: "Final[WeakValueDictionary[str, DueWork]]" = WeakValueDictionary()


@contextmanager
def follows(host_name: str) -> Iterator[None]:
    """Have what is due on the host be asked anew from the start of the block, a message's act, and after it."""
    known = _by_host.get(host_name)
    if known:
        known.forget()
    try:
        yield
    finally:
        if known:
            known.forget()


class DueWork:
    """What is due on one host; its threads share the answers."""

    def __init__(self, host: Host) -> None:
        """`sharing` is what becomes of idle GPU time in the host's group, as of the last answer."""
        self.sharing = ""
        self._question = _question(host)
        self._lock = threading.Lock()
        self._due: frozenset[Work] = frozenset()
        self._asked_at = float("-inf")
        self._due_at = dict.fromkeys(Work, float("-inf"))  # when each was last found due
        _by_host[host.name] = self

    def is_due(self, work: Work) -> bool:
        """Return whether the host has such work, or none was looked for in FULL_SECONDS; one query, or none."""
        with self._lock:
            now = time.monotonic()
            is_due = now - self._due_at[work] >= FULL_SECONDS or work in self._answer(now)
            if is_due:
                self._due_at[work] = now
            return is_due

    def only(self, work: Work, act: Callable[[], None]) -> Callable[[], None]:
        """Return a function that calls `act` where there is such work."""

        @wraps(act)
        def act_if_due() -> None:
            if self.is_due(work):
                act()

        return act_if_due

    def forget(self) -> None:
        """Ask anew next time, as what the answer depends on has changed."""
        with self._lock:
            self._asked_at = float("-inf")

    def _answer(self, now: float) -> frozenset[Work]:
        if now - self._asked_at >= ASK_SECONDS:
            self.sharing, *found = _row(*self._question) or (self.sharing,)
            self._due = frozenset(work for work, is_due in zip(Work, found, strict=False) if is_due)
            self._asked_at = now
        return self._due


def _question(host: Host) -> tuple[str, Sequence[Any]]:
    """Return the statement and its parameters; it has a row, with a column for each kind, while the host is known.

    The host alone is a parameter. An index of some statuses serves no plan made for any status, so with statuses as
    parameters the server would plan the statement anew each time once the tables are large.
    """
    conditions = [work.condition(host) for work in Work]
    rows = Host.objects.filter(pk=host.pk).order_by().values_list("group__sharing", *conditions)
    sql, parameters = rows.query.sql_with_params()
    first, *others = sql.split("%s")
    places = ["%s" if each == host.pk else Literal(each).as_string() for each in parameters]
    return first + "".join(map(add, places, others)), [each for each in parameters if each == host.pk]


def _row(sql: str, parameters: Sequence[Any]) -> Sequence[Any] | None:
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:  # Django's prepare nothing
        return cursor.execute(sql, parameters, prepare=True).fetchone()
