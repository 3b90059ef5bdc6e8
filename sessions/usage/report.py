"""What users, projects, groups or kinds of accelerators used and waited for on each day, from the record of sessions.

What was held comes from the changes of status and of size, exact to the second; what of it was idle comes from the
hosts' figures, where there are any.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final

from django.db import connection
from django.db.models import Count, F, FloatField, Q, Sum
from django.db.models.functions import Cast

from accounts.models import Project, User
from resources.amounts.units import GIB
from resources.models import ResourceGroup
from sessions.lifecycle import HOSTED
from sessions.models import SessionQuerySet, UsageDay

MAX_DAYS: Final = 366
DEFAULT_DAYS: Final = 30


class ReportBy(StrEnum):
    """What the rows of a report stand for."""

    USER = "user"
    PROJECT = "project"
    GROUP = "group"
    KIND = "kind"  # of the accelerators of their groups


_KEYS: Final = {
    ReportBy.USER: "owner_id",
    ReportBy.PROJECT: "project_id",
    ReportBy.GROUP: "resource_group_id",
    ReportBy.KIND: "resource_group__accelerator",
}
Key = int | str | None  # of a row: the id of what it stands for, or a kind

# Spans are between changes of status. Waiting for a start time or for other sessions is not waiting in the queue.
_HELD: Final = """
    WITH chosen (id, key, cpu, memory, fgpu, weight, per_gpu, not_before) AS ({chosen}), spans AS (
        SELECT chosen.*, event.new_status AS status,
            CASE WHEN event.new_status = 'PENDING' THEN greatest(event.at, chosen.not_before, others.over)
                ELSE event.at END AS since,
            coalesce(lead(event.at) OVER (PARTITION BY event.session_id ORDER BY event.id), %s) AS until
        FROM chosen
        JOIN compute_sessionevent event ON event.session_id = chosen.id AND event.old_status <> event.new_status
        LEFT JOIN LATERAL (
            SELECT max(coalesce(CASE link.kind WHEN 'after' THEN coalesce((
                SELECT min(run.at) FROM compute_sessionevent run
                WHERE run.session_id = other.id AND run.new_status = 'RUNNING'
            ), other.started_at) ELSE other.ended_at END, 'infinity')) AS over
            FROM compute_session_depends_on link JOIN compute_session other ON other.id = link.to_session_id
            WHERE link.from_session_id = chosen.id
        ) others ON true
    ), sizes (id, cpu, memory, fgpu, weight, since, until) AS (
        SELECT chosen.id, past.cpu, past.memory, past.fgpu, past.gpu_weight_milli,
            coalesce(lag(past.until) OVER (PARTITION BY chosen.id ORDER BY past.until), '-infinity'), past.until
        FROM chosen JOIN compute_pastsize past ON past.session_id = chosen.id
        UNION ALL
        SELECT chosen.id, cpu, memory, fgpu, weight, last.until, 'infinity'
        FROM chosen
        JOIN (SELECT session_id, max(until) AS until FROM compute_pastsize GROUP BY 1) last ON last.session_id = id
    ), counted AS (
        SELECT * FROM spans WHERE status = 'PENDING' OR status = ANY(%s)
    ), pieces (key, status, per_gpu, cpu, memory, fgpu, weight, since, until) AS (
        SELECT key, status, per_gpu, cpu, memory, fgpu, weight, since, until
        FROM counted WHERE NOT EXISTS (SELECT FROM compute_pastsize WHERE session_id = counted.id)
        UNION ALL
        SELECT key, status, per_gpu, sizes.cpu, sizes.memory, sizes.fgpu, sizes.weight,
            greatest(counted.since, sizes.since), least(counted.until, sizes.until)
        FROM counted JOIN sizes ON sizes.id = counted.id
    ), parts AS (
        SELECT pieces.*, (day AT TIME ZONE 'UTC')::date AS day,
            extract(epoch FROM least(until, day + interval '1 day') - greatest(since, day))::double precision AS seconds
        FROM pieces, generate_series(
            greatest(date_trunc('day', since, 'UTC'), %s), least(until, %s) - interval '1 microsecond', interval '1 day'
        ) AS day
        WHERE until > since
    )
    SELECT key, day,
        coalesce(sum(seconds * fgpu / per_gpu) FILTER (WHERE status <> 'PENDING'), 0) / 3600000,
        coalesce(sum(seconds * (fgpu * (weight / 1000.0)) / per_gpu) FILTER (WHERE status <> 'PENDING'), 0) / 3600000,
        coalesce(sum(seconds * cpu) FILTER (WHERE status <> 'PENDING'), 0) / 3600,
        coalesce(sum(seconds * memory) FILTER (WHERE status <> 'PENDING'), 0) / 3600,
        coalesce(sum(seconds) FILTER (WHERE status = 'PENDING'), 0) / 3600
    FROM parts GROUP BY 1, 2
"""


@dataclass(slots=True, kw_only=True)
class UsedAmounts:
    """Hours of what sessions held, of GPUs that were idle or whose use is known, and of waiting.

    Those of GPUs also by the weight of their model.
    """

    gpu_hours: float = 0.0
    weighted_gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    memory_gib_hours: float = 0.0
    waiting_hours: float = 0.0
    gpu_idle_hours: float = 0.0
    gpu_measured_hours: float = 0.0

    def add(self, other: "UsedAmounts") -> None:
        """Add the amounts of another."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def idle_percent(self) -> float | None:
        """The part of GPU time held that was idle; None where no use of a GPU is known."""
        return 100 * self.gpu_idle_hours / self.gpu_measured_hours if self.gpu_measured_hours else None

    @property
    def is_weighted(self) -> bool:
        """Whether some of these GPU hours count more or less than one."""
        return self.weighted_gpu_hours != self.gpu_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """What one user, project, group or kind used; the empty name is that of sessions without a project."""

    name: str
    sessions: int
    used: UsedAmounts


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """Who used most first, what was used on each day, and both in all."""

    since: date
    until: date  # the last day
    by: ReportBy
    rows: list[ReportRow]
    days: list[tuple[date, UsedAmounts]]
    total: UsedAmounts
    sessions: int


def report_of(sessions: SessionQuerySet, since: date, until: date, by: ReportBy, now: datetime) -> UsageReport:
    """Return what these sessions used from `since` to the end of `until`, in UTC; four queries."""
    begin = datetime.combine(since, time(), UTC)
    end = datetime.combine(until + timedelta(days=1), time(), UTC)
    chosen = sessions.filter(Q(ended_at=None) | Q(ended_at__gt=begin), created_at__lt=end).order_by()
    counts: dict[Key, int] = defaultdict(int, chosen.values_list(_KEYS[by]).annotate(Count("pk")))
    by_key: dict[Key, UsedAmounts] = defaultdict(UsedAmounts, {key: UsedAmounts() for key in counts})
    days = {since + timedelta(days=n): UsedAmounts() for n in range((until - since).days + 1)}
    for key, day, used in (*_held(chosen, begin, end, by, now), *_idle(chosen, since, until, by)):
        by_key[key].add(used)
        days[day].add(used)
    total = UsedAmounts()
    for used in days.values():
        total.add(used)
    names = _names(by, by_key)
    rows = [ReportRow(name=names.get(key, ""), sessions=counts[key], used=used) for key, used in by_key.items()]
    rows.sort(key=lambda row: (-row.used.gpu_hours, -row.used.cpu_hours, row.name))
    return UsageReport(
        since=since, until=until, by=by, rows=rows, days=list(days.items()), total=total, sessions=sum(counts.values())
    )


_Part = tuple[Key, date, UsedAmounts]


def _held(chosen: SessionQuerySet, begin: datetime, end: datetime, by: ReportBy, now: datetime) -> Iterable[_Part]:
    columns = (
        "pk",
        _KEYS[by],
        "cpu",
        "memory",
        "fgpu",
        "gpu_weight_milli",
        "resource_group__fgpu_per_gpu",
        "not_before",
    )
    sql, parameters = chosen.values_list(*columns).query.sql_with_params()
    hosted = sorted(status.value for status in HOSTED)
    with connection.cursor() as cursor:
        cursor.execute(_HELD.replace("{chosen}", sql), [*parameters, now, hosted, begin, end])
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    for key, day, gpu, weighted, cpu, memory, waiting in rows:
        yield (
            key,
            day,
            UsedAmounts(
                gpu_hours=gpu,
                weighted_gpu_hours=weighted,
                cpu_hours=cpu,
                memory_gib_hours=float(memory) / GIB,
                waiting_hours=waiting,
            ),
        )


def _idle(chosen: SessionQuerySet, since: date, until: date, by: ReportBy) -> Iterable[_Part]:
    per_gpu = Cast(F("session__resource_group__fgpu_per_gpu"), FloatField()) * 3_600_000
    sums = UsageDay.objects.filter(session__in=chosen.values("pk"), day__gte=since, day__lte=until).order_by()
    for key, day, idle, measured in sums.values_list(f"session__{_KEYS[by]}", "day").annotate(
        idle=Sum(F("fgpu_milli_seconds_idle") / per_gpu, output_field=FloatField(), default=0.0),
        measured=Sum(F("fgpu_milli_seconds") / per_gpu, output_field=FloatField(), default=0.0),
    ):
        yield key, day, UsedAmounts(gpu_idle_hours=idle, gpu_measured_hours=measured)


def _names(by: ReportBy, keys: Iterable[Key]) -> dict[Key, str]:
    ids = [key for key in keys if key is not None]
    if by == ReportBy.KIND:
        return {key: str(key) for key in ids}
    if by == ReportBy.USER:
        return dict(User.objects.filter(pk__in=ids).values_list("pk", "email"))
    if by == ReportBy.PROJECT:
        return dict(Project.objects.filter(pk__in=ids).values_list("pk", "name"))
    return dict(ResourceGroup.objects.filter(pk__in=ids).values_list("pk", "name"))
