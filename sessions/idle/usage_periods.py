"""Turns what hosts record of sessions into means of five minutes, on which idle rules rest, and into sums of days."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import Avg, Count, DateTimeField, F, Func, Max, Sum, Value

from sessions.idle_rules import MAX_SPAN, PERIOD, RECORD_SECONDS, PeriodUse, known_mean, start_of_period
from sessions.limits.locks import hold_if_free
from sessions.models import GpuShare, PastSize, Session, SessionUsage, UsagePeriod

SETTLE: Final = timedelta(seconds=45)  # in which the last records of a period arrive
USAGE_RETENTION: Final = timedelta(hours=2)  # of what hosts record
PERIOD_RETENTION: Final = 2 * MAX_SPAN + timedelta(days=1)  # the longest window, a week before
LOCK: Final = 7_214_305  # of PostgreSQL's advisory locks: one process writes periods
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DAYS: Final = """
    INSERT INTO compute_usageday AS known (session_id, day, measured_seconds, idle_seconds, cpu_milli_seconds,
        fgpu_milli_seconds, fgpu_milli_seconds_idle, fgpu_milli_seconds_used)
    SELECT session_id, (at AT TIME ZONE 'UTC')::date, %(seconds)s * count(cpu_milli),
        %(seconds)s * count(*) FILTER (WHERE is_idle), %(seconds)s * coalesce(sum(cpu_milli), 0),
        %(seconds)s * coalesce(sum(fgpu) FILTER (WHERE gpu_percent IS NOT NULL), 0),
        %(seconds)s * coalesce(sum(fgpu) FILTER (WHERE gpu_percent < 1), 0),
        round(%(seconds)s * coalesce(sum(fgpu * gpu_percent / 100), 0))
    FROM compute_usageperiod
    WHERE session_id = ANY(%(sessions)s) AND at >= %(since)s
    GROUP BY 1, 2
    ON CONFLICT (session_id, day) DO UPDATE SET
        measured_seconds = excluded.measured_seconds, idle_seconds = excluded.idle_seconds,
        cpu_milli_seconds = excluded.cpu_milli_seconds, fgpu_milli_seconds = excluded.fgpu_milli_seconds,
        fgpu_milli_seconds_idle = excluded.fgpu_milli_seconds_idle,
        fgpu_milli_seconds_used = excluded.fgpu_milli_seconds_used
"""


@dataclass(frozen=True, slots=True)
class HeldShape:
    """What a session holds: cores, milli-fGPU, the part of its GPUs' time (None while unknown), and its last use."""

    cpu: int
    fgpu: int
    gpu_fraction: float | None
    last_used_at: datetime | None


def record_periods(now: datetime) -> int:
    """Write the periods that are over by now and return how many there are; one query where there is nothing to write.

    Idempotent. What was not written for a while follows, as far back as there are records of hosts.
    """
    end = start_of_period(now - SETTLE)
    with transaction.atomic():
        last = UsagePeriod.objects.aggregate(last=Max("at"))["last"]
        since = max(last + PERIOD if last else EPOCH, start_of_period(now - USAGE_RETENTION) + PERIOD)
        if since >= end or not hold_if_free(LOCK):
            return 0
        found = _means(since, end)
        shapes = held_shapes({row["session_id"] for row in found})
        past = _past_shapes(shapes, since)
        rows = [
            _row(row, _shape_in(shapes[pk], past.get(pk, ()), row["start"]))
            for row in found
            if (pk := row["session_id"]) in shapes
        ]
        UsagePeriod.objects.bulk_create(rows, ignore_conflicts=True)
        if rows:
            _sum_days(list(shapes), since)
        UsagePeriod.objects.filter(at__lt=now - PERIOD_RETENTION).delete()
    return len(rows)


def delete_old_records(now: datetime) -> None:
    """Delete what hosts have recorded and nobody shows any more: here and not by each host, of which all would look."""
    SessionUsage.objects.filter(at__lt=now - USAGE_RETENTION).delete()


def latest_uses(session_ids: Iterable[str], since: datetime, now: datetime) -> dict[str, PeriodUse]:
    """Return what these sessions used from `since` on, by id; without those of which nothing was recorded."""
    shapes = held_shapes(session_ids)
    expected = (now - since).total_seconds() / RECORD_SECONDS
    fresh = SessionUsage.objects.filter(session__in=list(shapes), at__gte=since).order_by()
    found: Any = fresh.values("session_id").annotate(**_MEANS)
    return {row["session_id"]: _use(row, shapes[row["session_id"]], since, expected) for row in found}


def _past_shapes(shapes: dict[str, HeldShape], since: datetime) -> dict[str, list[tuple[datetime, HeldShape]]]:
    """Return what sessions that were resized since then held before, with until when, by id; one query."""
    found: dict[str, list[tuple[datetime, HeldShape]]] = {}
    past = PastSize.objects.filter(session__in=list(shapes), until__gt=since).order_by("until")
    for pk, until, cpu, fgpu in past.values_list("session_id", "until", "cpu", "fgpu"):
        now = shapes[pk]
        fraction = now.gpu_fraction * fgpu / now.fgpu if now.gpu_fraction and now.fgpu else None
        found.setdefault(pk, []).append((until, replace(now, cpu=cpu, fgpu=fgpu, gpu_fraction=fraction)))
    return found


def _shape_in(now: HeldShape, past: Sequence[tuple[datetime, HeldShape]], begin: datetime) -> HeldShape:
    """Return the least that the session held within a period: it never seems more idle than it was."""
    end, held, since = begin + PERIOD, [], begin
    for until, shape in past:
        if until > begin and since < end:
            held.append(shape)
        since = max(since, until)
    if since < end:
        held.append(now)
    smallest = min(held, key=lambda shape: shape.fgpu)
    return replace(smallest, cpu=min(shape.cpu for shape in held))


def held_shapes(session_ids: Iterable[str]) -> dict[str, HeldShape]:
    """Return what these sessions hold, by id; two queries."""
    ids = list(session_ids)
    shares = GpuShare.objects.filter(lease_id__in=ids).order_by().values("lease_id")
    held = {row["lease_id"]: row for row in shares.annotate(milli=Sum("milli"), devices=Count("pk"))}
    rows = Session.objects.filter(pk__in=ids).order_by()
    shapes = {}
    for pk, cpu, fgpu, per_gpu, used_at in rows.values_list(
        "pk", "cpu", "fgpu", "resource_group__fgpu_per_gpu", "last_activity_at"
    ):
        share = held.get(pk)
        fraction = share["milli"] / (share["devices"] * per_gpu * 1000) if share else None
        shapes[pk] = HeldShape(cpu, fgpu, fraction, used_at)
    return shapes


_MEANS: Final = {
    "cpu": Avg("cpu_milli"),
    "cpu_count": Count("cpu_milli"),
    "gpu": Avg("gpu_utilisation"),
    "gpu_count": Count("gpu_utilisation"),
    "network": Avg(F("received") + F("sent")),
    "network_count": Count("received"),
}


def _means(since: datetime, end: datetime) -> list[dict[str, Any]]:
    """Return the means of each session and period; one query."""
    start = Func(Value(PERIOD), F("at"), Value(EPOCH), function="date_bin", output_field=DateTimeField())
    records = SessionUsage.objects.filter(at__gte=since, at__lt=end).order_by()
    found: Any = records.annotate(start=start).values("session_id", "start").annotate(**_MEANS)
    return list(found)


def _use(means: dict[str, Any], shape: HeldShape, since: datetime, expected: float) -> PeriodUse:
    cpu = _known(means, "cpu", expected)
    network = _known(means, "network", expected)
    gpu = _known(means, "gpu", expected) if shape.fgpu and shape.gpu_fraction else None
    return PeriodUse(
        cpu_milli=None if cpu is None else round(cpu),
        cpu_percent=None if cpu is None else cpu / (10 * shape.cpu),
        gpu_percent=None if gpu is None or not shape.gpu_fraction else min(100.0, gpu / shape.gpu_fraction),
        network_bytes=None if network is None else round(network),
        has_gpu=shape.fgpu > 0,
        # The time of the last use alone is stored, so a later one may hide one in this period.
        was_used=shape.last_used_at is not None and shape.last_used_at >= since,
    )


def _known(means: dict[str, Any], name: str, expected: float) -> float | None:
    mean = known_mean(means[name], means[f"{name}_count"], expected)
    return None if mean is None else float(mean)


def _row(means: dict[str, Any], shape: HeldShape) -> UsagePeriod:
    use = _use(means, shape, means["start"], PERIOD.total_seconds() / RECORD_SECONDS)
    return UsagePeriod(
        session_id=means["session_id"],
        at=means["start"],
        cpu_milli=use.cpu_milli,
        cpu_percent=use.cpu_percent,
        fgpu=shape.fgpu,
        gpu_percent=use.gpu_percent,
        network_bytes=use.network_bytes,
        was_used=use.was_used,
        is_idle=use.is_idle,
    )


def _sum_days(session_ids: list[str], since: datetime) -> None:
    """Write the sums of the days from that of `since` on."""
    day = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    parameters: dict[str, Any] = {"sessions": session_ids, "since": day, "seconds": int(PERIOD.total_seconds())}
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, parameters)
