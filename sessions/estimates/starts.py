"""What sessions that wait are told of their starts, stored, and how right it was."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import models
from django.db.models import Count, F, Q
from django.db.models.functions import Greatest

from sessions.models import StartForecast

ACCURACY_SPAN: Final = timedelta(days=7)
_FIRST: Final = ("first_likely", "first_from", "first_until")
_LAST: Final = ("likely", "starts_from", "starts_until")


class NewEstimate(NamedTuple):
    """What is told of the start of a session."""

    session_id: str
    likely: datetime
    starts_from: datetime
    starts_until: datetime
    is_by_limits: bool  # alone, as run times are not known


def tell(group_id: int, estimates: Iterable[NewEstimate], now: datetime) -> None:
    """Store what is told of sessions that wait for a group; what they were told first stays."""
    rows = [
        StartForecast(
            session_id=each.session_id,
            group_id=group_id,
            created_at=now,
            **dict(zip((*_FIRST, "first_by_limits"), each[1:], strict=True)),
            **dict(zip(_LAST, each[1:], strict=False)),
        )
        for each in sorted(estimates)  # in the order of ids, so that two passes never wait for each other in a circle
    ]
    StartForecast.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["session"], update_fields=["group", *_LAST]
    )


def note_starts(session_ids: Collection[str], now: datetime) -> None:
    """Note that sessions which were told when they start have started; in the transaction of their placement."""
    StartForecast.objects.filter(session__in=session_ids, placed_at=None).update(placed_at=now)


class Accuracy(NamedTuple):
    """How the starts of a group compare with what was told of them, as they joined or at last."""

    group: str
    estimate: str  # first or last
    starts: int
    in_range: int
    median_error: timedelta


def accuracy(now: datetime) -> list[Accuracy]:
    """Return it for the groups with starts in the last seven days, by name; two queries."""
    started = StartForecast.objects.filter(placed_at__gt=now - ACCURACY_SPAN).values_list("group__name").order_by()
    found = []
    for estimate, likely, begin, end in (
        ("first", "first_likely", "first_from", "first_until"),
        ("last", "likely", "starts_from", "starts_until"),
    ):
        error = Greatest(F("placed_at") - F(likely), F(likely) - F("placed_at"))
        rows = started.annotate(
            starts=Count("pk"),
            in_range=Count("pk", filter=Q(placed_at__gte=F(begin), placed_at__lte=F(end))),
            median_error=_Median(error, output_field=models.DurationField()),
        )
        found += [Accuracy(group, estimate, *rest) for group, *rest in rows]
    return sorted(found)


class _Median(models.Aggregate):
    """The median of a column."""

    function = "percentile_cont"
    template = "%(function)s(0.5) WITHIN GROUP (ORDER BY %(expressions)s)"
