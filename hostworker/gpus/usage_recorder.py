"""Records what each running session of this host uses, every few seconds and over its whole life."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db.models import F, Q

from hostworker.gpus.watchdog import SessionGpuUse
from hostworker.runtime_protocol import ContainerUse, Key, Runtime
from resources import clock
from resources.gpus.shares import share_bytes
from resources.hosts.frequent import insert_rows
from resources.models import Host
from sessions.lifecycle import FINAL, Status
from sessions.models import Session, SessionUsage, UsageHistory
from sessions.usage.points import FIELDS, FIRST_STEP_SECONDS, UsagePoints

POLL_INTERVAL_SECONDS: Final = 2.0  # how old what programs read as their memory may be
RECORD_SECONDS: Final = FIRST_STEP_SECONDS
FOLD_SECONDS: Final = 60
FOLDED_AFTER_END: Final = timedelta(minutes=10)  # a session's last records are added within this

Moment = tuple[float, ContainerUse]  # seconds of the monotonic clock


class UsageRecorder:
    """Records the use of one host's sessions; `gpu_readings` returns what the watchdog has seen, by session id."""

    def __init__(self, runtime: Runtime, host: Host, gpu_readings: Callable[[], Mapping[str, SessionGpuUse]]) -> None:
        self._runtime = runtime
        self._host = host
        self._gpu_readings = gpu_readings
        self._before: dict[Key, Moment] = {}  # at the last record, or when the container was first seen
        self._recorded_at = self._folded_at = 0.0

    def poll(self) -> None:
        """Measure, record when due, and add the records to the histories now and then.

        Raises EngineUnreachableError; the next poll continues.
        """
        now, uses = time.monotonic(), self._runtime.uses()
        self._before = {key: self._before.get(key, (now, use)) for key, use in uses.items()}
        if now - self._recorded_at < RECORD_SECONDS:
            return
        self._recorded_at = now
        self._record(uses, now)
        if now - self._folded_at >= FOLD_SECONDS:
            self._folded_at = now
            fold_records(self._host, clock.now())

    def _record(self, uses: Mapping[Key, ContainerUse], now: float) -> None:
        """Store what each session uses; two queries, none where nothing is used."""
        at, gpus = clock.now(), self._gpu_readings()
        if not (uses or gpus):
            self._before = {}
            return
        running = Session.objects.filter(host=self._host, status=Status.RUNNING).order_by()
        rows = []
        for pk, attempt in running.values_list("pk", "attempt"):
            use, gpu = uses.get((pk, attempt)), gpus.get(pk)
            row = SessionUsage(session_id=pk, at=at, **_since(self._before.get((pk, attempt)), use, now))
            if gpu:
                row.gpu_memory, row.gpu_utilisation = gpu.memory_bytes, gpu.utilisation
            if use or gpu:
                rows.append(row)
        insert_rows(rows)
        self._before = {key: (now, use) for key, use in uses.items()}


def _since(before: Moment | None, use: ContainerUse | None, now: float) -> dict[str, int]:
    """Return the fields of a record; what is measured over time is left out where too little has passed."""
    if use is None:
        return {}
    fields = {"memory": use.memory_bytes}
    if before and (seconds := now - before[0]) >= 1:
        fields["cpu_milli"] = max(0, round((use.cpu_nanoseconds - before[1].cpu_nanoseconds) / seconds / 1e6))
        for name in ("received", "sent"):
            now_bytes, then_bytes = getattr(use, f"{name}_bytes"), getattr(before[1], f"{name}_bytes")
            if now_bytes is not None and then_bytes is not None:
                fields[name] = max(0, round((now_bytes - then_bytes) / seconds))
    return fields


def fold_records(host: Host, now: datetime) -> None:
    """Add the records since the last time to the histories of the host's sessions; six queries. Idempotent.

    All hosts do so, hence an index serves each alternative; that of past sessions has those alone that were started.
    """
    ended = Q(status__in=FINAL, ended_at__gt=now - FOLDED_AFTER_END, started_at__isnull=False)
    lately = Q(status=Status.RUNNING) | ended
    related = Session.objects.filter(lately, host=host).select_related("resource_group", "lease")
    sessions = {session.pk: session for session in related.prefetch_related("lease__shares__gpu")}
    known = {history.pk: history for history in UsageHistory.objects.filter(session__in=sessions)}
    fresh = SessionUsage.objects.filter(session__in=sessions).order_by("at")
    fresh = fresh.filter(Q(session__usage_history=None) | Q(at__gt=F("session__usage_history__folded_until")))
    by_session: dict[str, list[SessionUsage]] = {}
    for row in fresh:
        by_session.setdefault(row.session_id, []).append(row)
    histories = [_folded(sessions[pk], known.get(pk), rows) for pk, rows in by_session.items()]
    changing = ("step_seconds", "points", "folded_until", "gpu_memory_share", "gpu_memory_cards")
    UsageHistory.objects.bulk_create(
        histories, update_conflicts=True, unique_fields=("session",), update_fields=changing
    )


def _folded(session: Session, history: UsageHistory | None, rows: Sequence[SessionUsage]) -> UsageHistory:
    """Return the session's history with these records added, not yet saved."""
    if history is None:
        history = UsageHistory(session=session, begun_at=session.started_at or rows[0].at, step_seconds=RECORD_SECONDS)
    points = UsagePoints(history.points, history.step_seconds).fold(
        ((row.at - history.begun_at).total_seconds(), [getattr(row, name) for name in FIELDS]) for row in rows
    )
    history.points, history.step_seconds, history.folded_until = points.points, points.step_seconds, rows[-1].at
    if shares := [share for share, _ in session.held_shares]:
        capacity = session.resource_group.gpu_capacity
        history.gpu_memory_share = sum(share_bytes(share.gpu.memory, share.milli, capacity) for share in shares)
        history.gpu_memory_cards = sum(share.gpu.memory for share in shares)
    return history
