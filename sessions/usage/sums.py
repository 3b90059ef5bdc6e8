"""Sums of what was used on each day that is over, so that reports need not read all events again.

A day is summed some hours after its end, in one transaction with the row that says so (`SummedDay`). Whatever changes
the past after that, of which there is little, leaves a `UsageCorrection` by a trigger in its own transaction
(`migrations/0044_usage_sums.py`): from then on reports read the events of those days, until they are summed again.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, Min, OuterRef, QuerySet

from sessions.limits.locks import hold_if_free
from sessions.models import Session, SummedDay, UsageCorrection
from sessions.usage.held import HELD_COLUMNS, held_query

SETTLE: Final = timedelta(hours=3)  # in which what belongs to a day still arrives; records of hosts are kept for two
MAX_DAYS_AT_ONCE: Final = 50
LOCK: Final = 7_214_306  # of PostgreSQL's advisory locks: one process sums

_KEYS: Final = ("owner_id", "project_id", "resource_group_id")
_HELD: Final = f"INSERT INTO compute_usagesum ({', '.join((*_KEYS, 'day_id', *HELD_COLUMNS))}) "
_MEASURED: Final = """
    INSERT INTO compute_usagesum
        (owner_id, project_id, resource_group_id, day_id, measured_fgpu_milli_seconds, idle_fgpu_milli_seconds)
    SELECT owner_id, project_id, resource_group_id, day, sum(fgpu_milli_seconds), sum(fgpu_milli_seconds_idle)
    FROM compute_usageday JOIN compute_session ON compute_session.id = session_id WHERE day=%s GROUP BY 1, 2, 3, 4
"""


def day_begins(day: date) -> datetime:
    """Return the beginning of a day in UTC."""
    return datetime.combine(day, time(), UTC)


def summed_days() -> QuerySet[SummedDay]:
    """Return the days whose sums are what their events say."""
    return SummedDay.objects.exclude(_covered_by(UsageCorrection.objects.all()))


def _covered_by(corrections: QuerySet[UsageCorrection]) -> Exists:
    return Exists(corrections.filter(since__lte=OuterRef("day"), until__gte=OuterRef("day")))


def retention_days() -> int:
    """Return for how many days sums are kept: as long as there is all that they rest on; 0: for ever."""
    return min(filter(None, (settings.COMPUTE_SESSIONS_DAYS, settings.COMPUTE_USAGE_DAYS)), default=0)


def old_days(before: datetime) -> QuerySet[SummedDay]:
    """Return the days of which something may have been removed that was older than the moment."""
    return SummedDay.objects.filter(day__lte=before.astimezone(UTC).date()).order_by("day")


def sum_days(now: datetime) -> int:
    """Sum days that are over and not summed, or corrected since, the latest first; return how many.

    Idempotent, a transaction for each day, at most MAX_DAYS_AT_ONCE: the next run goes on.
    """
    _drop_corrected()
    return sum(_sum_day(day) for day, _ in zip(_missing(now), range(MAX_DAYS_AT_ONCE), strict=False))


@transaction.atomic
def _drop_corrected() -> None:
    """Remove the sums of days that were corrected, which are summed again, and these corrections."""
    if not hold_if_free(LOCK):
        return
    corrections = UsageCorrection.objects.filter(pk__in=list(UsageCorrection.objects.values_list("pk", flat=True)))
    SummedDay.objects.filter(_covered_by(corrections)).delete()
    corrections.delete()  # later ones stay


def _missing(now: datetime) -> Iterator[date]:
    begun = Session.objects.aggregate(begun=Min("created_at"))["begun"]
    if begun is None:
        return
    days = retention_days()
    first = max(begun.date(), (now - timedelta(days=days - 1)).date() if 0 < days < now.toordinal() else date.min)
    last = (now - SETTLE).date() - timedelta(days=1)
    summed = set(SummedDay.objects.filter(day__gte=first).values_list("day", flat=True))
    for number in range((last - first).days + 1):
        if (day := last - timedelta(days=number)) not in summed:
            yield day


@transaction.atomic
def _sum_day(day: date) -> int:
    """Write the sums of the day; return 1, or 0 where another process does it or did."""
    if not hold_if_free(LOCK) or SummedDay.objects.filter(day=day).exists():
        return 0
    SummedDay.objects.create(day=day)
    begin, end = day_begins(day), day_begins(day + timedelta(days=1))
    held, parameters = held_query(Session.objects.all(), _KEYS, begin, end, end)
    with connection.cursor() as cursor:
        cursor.execute(_HELD + held, parameters)
        cursor.execute(_MEASURED, [day])
    return 1
