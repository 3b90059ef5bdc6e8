"""What users, projects, groups or kinds of accelerators used and waited for on each day, from the record of sessions.

What was held comes from the changes of status and of size, exact to the second; what of it was idle comes from the
hosts' figures, where there are any. Of days that are over there are sums.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from django.db import connection
from django.db.models import Count, F, FloatField, Q, QuerySet, Sum
from django.db.models.functions import Cast

from accounts.models import Project, User
from resources.amounts.units import GIB
from resources.models import ResourceGroup
from sessions.models import Session, SessionQuerySet, UsageDay, UsageSum
from sessions.usage.held import held_query, lived_within
from sessions.usage.sums import day_begins, summed_days

MAX_DAYS: Final = 366
DEFAULT_DAYS: Final = 30
_DAY: Final = timedelta(days=1)


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

_HOURS: Final = 3600.0
_GPU_HOURS: Final = 3_600_000.0  # a GPU has 1,000 milli-fGPU for each fGPU that it is divided into


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
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

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


def report_of(scope: Q, since: date, until: date, by: ReportBy, now: datetime) -> UsageReport:
    """Return what was used from `since` to the end of `until`, in UTC; seven queries at most.

    `scope` is a condition on owner, project and resource group, such as `visible_to`. Days that are summed come from
    their sums, others from the record of sessions.
    """
    sessions = Session.objects.filter(scope)
    lived = lived_within(sessions, day_begins(since), day_begins(until + _DAY))
    counts: dict[Key, int] = defaultdict(int, lived.values_list(_KEYS[by]).annotate(Count("pk")))
    by_key: dict[Key, UsedAmounts] = defaultdict(UsedAmounts, {key: UsedAmounts() for key in counts})
    days = {since + n * _DAY: UsedAmounts() for n in range((until - since).days + 1)}
    summed = set(summed_days().filter(day__gte=since, day__lte=until).values_list("day", flat=True))
    if summed:
        sums = UsageSum.objects.filter(scope, day__in=summed)
        _add(by_key, _summed(sums, _KEYS[by]))
        _add(days, _summed(sums, "day"))
    if others := sorted(days.keys() - summed):
        for key, day, used in (*_held(sessions, others, by, now), *_measured(sessions, others, by)):
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


def _add(to: dict[Any, UsedAmounts], parts: Iterable[tuple[Any, UsedAmounts]]) -> None:
    for key, used in parts:
        to[key].add(used)


def _summed(sums: QuerySet[UsageSum], key: str) -> Iterator[tuple[Any, UsedAmounts]]:
    """Yield what was summed by this column."""
    per_gpu = Cast(F("resource_group__fgpu_per_gpu"), FloatField())
    for each, *amounts in (
        sums.order_by()
        .values_list(key)
        .annotate(
            fgpu=Sum(F("fgpu_milli_seconds") / per_gpu),
            weighted=Sum(F("weighted_fgpu_milli_seconds") / per_gpu),
            cpu=Sum("cpu_seconds"),
            memory=Sum("memory_byte_seconds"),
            waiting=Sum("waiting_seconds"),
            idle=Sum(F("idle_fgpu_milli_seconds") / per_gpu),
            measured=Sum(F("measured_fgpu_milli_seconds") / per_gpu),
        )
    ):
        yield each, _used(*amounts)


def _held(sessions: SessionQuerySet, days: Sequence[date], by: ReportBy, now: datetime) -> Iterator[_Part]:
    keys = (_KEYS[by], "resource_group__fgpu_per_gpu")
    query = held_query(sessions, keys, day_begins(days[0]), day_begins(days[-1] + _DAY), now)
    with connection.cursor() as cursor:
        cursor.execute(*query)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    for key, per_gpu, begun, fgpu, weighted, *others in rows:
        if (day := begun.date()) in days:
            yield key, day, _used(fgpu / per_gpu, weighted / per_gpu, *others)


def _measured(sessions: SessionQuerySet, days: Sequence[date], by: ReportBy) -> Iterator[_Part]:
    per_gpu = Cast(F("session__resource_group__fgpu_per_gpu"), FloatField())
    sums = UsageDay.objects.filter(session__in=sessions.values("pk"), day__in=days).order_by()
    for key, day, idle, measured in sums.values_list(f"session__{_KEYS[by]}", "day").annotate(
        idle=Sum(F("fgpu_milli_seconds_idle") / per_gpu, output_field=FloatField()),
        measured=Sum(F("fgpu_milli_seconds") / per_gpu, output_field=FloatField()),
    ):
        yield key, day, _used(idle=idle, measured=measured)


def _used(
    fgpu: float = 0.0,
    weighted: float = 0.0,
    cpu: float = 0.0,
    memory: float = 0.0,
    waiting: float = 0.0,
    idle: float = 0.0,
    measured: float = 0.0,
) -> UsedAmounts:
    """Return amounts by the second in hours; those of GPUs are given in milli-fGPU by the fGPU of a GPU."""
    return UsedAmounts(
        gpu_hours=fgpu / _GPU_HOURS,
        weighted_gpu_hours=weighted / _GPU_HOURS,
        cpu_hours=cpu / _HOURS,
        memory_gib_hours=memory / GIB / _HOURS,
        waiting_hours=waiting / _HOURS,
        gpu_idle_hours=idle / _GPU_HOURS,
        gpu_measured_hours=measured / _GPU_HOURS,
    )


def _names(by: ReportBy, keys: Iterable[Key]) -> dict[Key, str]:
    ids = [key for key in keys if key is not None]
    if by == ReportBy.KIND:
        return {key: str(key) for key in ids}
    if by == ReportBy.USER:
        return dict(User.objects.filter(pk__in=ids).values_list("pk", "email"))
    if by == ReportBy.PROJECT:
        return dict(Project.objects.filter(pk__in=ids).values_list("pk", "name"))
    return dict(ResourceGroup.objects.filter(pk__in=ids).values_list("pk", "name"))
