"""Probes the replicas of deployments on one host, and records their health; the proxies hear of each change."""

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from deployments import events
from deployments.models import Replica
from hostworker.replicas import health
from hostworker.replicas.health import HealthRecord, Patience, ProbeTarget
from messaging.background import BackgroundThread
from resources import clock
from resources.models import Host
from sessions import notify
from sessions.lifecycle import Status

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 0.5
START_INTERVAL_SECONDS: Final = 0.5  # for which a replica that was not healthy yet is probed again and again
_COLUMNS: Final = (
    "session_id",
    "deployment_id",
    "health",
    "failures",
    "health_detail",
    "session__attempt",
    "session__address",
    "session__started_at",
    "revision__port",
    "revision__health_path",
    "revision__start_seconds",
    "revision__interval_seconds",
    "revision__timeout_seconds",
    "revision__retries",
)


_watches: "Final[WeakSet[ReplicaWatch]]" = WeakSet()


class _Probe(NamedTuple):
    row: dict[str, Any]
    problem: "Future[str]"


def probed(host: Host) -> QuerySet[Replica]:
    """Return the replicas of this host that run and do not drain."""
    running = Replica.objects.filter(session__host=host, session__status=Status.RUNNING, draining_since=None)
    return running.exclude(session__address=None)


class ReplicaWatch:
    """Probes each replica at its own interval. `poll` never waits for one: a slow replica holds up no other's probe.

    One that starts is probed as soon as its container runs, and its first answer is stored at once.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._next_at: dict[str, float] = {}  # by session, by the monotonic clock
        self._under_way: dict[str, _Probe] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()  # of a poll
        self._background = BackgroundThread("replicas")
        _watches.add(self)

    def poll_soon(self) -> None:
        """Poll in the background: a session has just started, or a replica has answered for the first time."""
        self._background.run(self.poll)

    def poll(self) -> None:
        """Record what probes have found, and begin those that are due; one query, and one for each change."""
        with self._lock:
            self._poll()

    def _poll(self) -> None:
        for pk in [pk for pk, each in self._under_way.items() if each.problem.done()]:
            self._record(*self._under_way.pop(pk))
        now, rows = time.monotonic(), {row["session_id"]: row for row in probed(self.host).values(*_COLUMNS)}
        self._next_at = {pk: at for pk, at in self._next_at.items() if pk in rows}
        for pk, row in rows.items():
            if pk not in self._next_at and row["health"] == health.STARTING:  # proxies know its route when it answers
                notify.publish_to_proxies({"deployment": row["deployment_id"]})
            if pk not in self._under_way and now >= self._next_at.get(pk, 0.0):
                self._next_at[pk] = now + _interval(row)
                self._under_way[pk] = _Probe(row, self._begin(row))

    def end(self) -> None:
        """End the thread that probes."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _begin(self, row: dict[str, Any]) -> "Future[str]":
        target = ProbeTarget(
            address=str(row["session__address"]),
            port=row["revision__port"],
            path=row["revision__health_path"],
            timeout_seconds=row["revision__timeout_seconds"],
        )
        if row["health"] != health.STARTING:
            return asyncio.run_coroutine_threadsafe(health.probe(target), self._running_loop())
        starting = health.first_answer(target, age_seconds=_age_seconds(row), seconds=START_INTERVAL_SECONDS)
        found = asyncio.run_coroutine_threadsafe(starting, self._running_loop())
        found.add_done_callback(self._note_answer)
        return found

    def _note_answer(self, found: "Future[str]") -> None:
        if not found.cancelled() and not found.exception() and not found.result():
            self.poll_soon()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the probes, which runs in a thread of its own from the first probe on."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="replica-probes", daemon=True).start()
        return self._loop

    def _record(self, row: dict[str, Any], problem: "Future[str]") -> None:
        if error := problem.exception():
            logger.error("session %s: its probe failed", row["session_id"], exc_info=error)
            return
        before = HealthRecord(health=row["health"], failures=row["failures"], detail=row["health_detail"])
        patience = Patience(start_seconds=row["revision__start_seconds"], retries=row["revision__retries"])
        after = health.after_probe(before, problem.result(), patience=patience, age_seconds=_age_seconds(row))
        if after != before:
            _store(row, after, has_changed=after.health != before.health)


def look_soon(host_id: int | None) -> None:
    """Have this process look at the replicas of this host of its now, as one has just started."""
    for watch in list(_watches):
        if watch.host.pk == host_id:
            watch.poll_soon()


def _age_seconds(row: dict[str, Any]) -> float:
    now = clock.now()
    return float((now - (row["session__started_at"] or now)).total_seconds())


def _interval(row: dict[str, Any]) -> float:
    """Return the seconds between two probes: few while requests wait that it answers the first time."""
    seconds: int = row["revision__interval_seconds"]
    return min(seconds, START_INTERVAL_SECONDS) if row["health"] == health.STARTING else seconds


def _store(row: dict[str, Any], after: HealthRecord, *, has_changed: bool) -> None:
    """Store what was found, unless the replica has stopped, drains or was started anew meanwhile."""
    changes: dict[str, Any] = {
        "health": after.health,
        "failures": after.failures,
        "health_detail": after.detail[:300],
    }
    now = clock.now()
    if has_changed and after.health == health.HEALTHY:
        changes |= {"healthy_at": Coalesce("healthy_at", now), "unhealthy_at": None}
    elif has_changed:
        changes |= {"unhealthy_at": now}
    with transaction.atomic():
        same = Replica.objects.filter(pk=row["session_id"], health=row["health"], draining_since=None)
        started = {"session__status": Status.RUNNING, "session__attempt": row["session__attempt"]}
        if same.filter(**started).update(**changes) and has_changed:
            logger.info("session %s: %s %s", row["session_id"], after.health, after.detail)
            is_healthy = after.health == health.HEALTHY
            more = {"healthy": row["session_id"], "attempt": row["session__attempt"]} if is_healthy else {}
            events.changed(row["deployment_id"], **more)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
