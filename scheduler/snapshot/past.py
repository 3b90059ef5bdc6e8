"""Reads what estimates learn from: how long sessions ran, and how starts compared with what was told of them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from scheduler.core.types import RunningSession
from scheduler.core.waiting.calibration import OUTCOMES, Calibration, StartRange
from scheduler.core.waiting.run_times import RunTimes, stem_of
from sessions.lifecycle import Status
from sessions.models import Session, StartForecast

PAST_SESSIONS: Final = 2_000  # that ended last


def load_past() -> RunTimes:
    """Return the run times of the sessions that ended last; one query."""
    past = RunTimes()
    columns = ("pk", "owner_id", "project_id", "image_id", "fgpu", "name", "started_at", "ended_at")
    ended = Session.objects.filter(ended_at__isnull=False, started_at__isnull=False).order_by("-ended_at")
    for pk, owner, project, image, fgpu, name, started_at, ended_at in reversed(
        ended.values_list(*columns)[:PAST_SESSIONS]
    ):
        shares = ((0, fgpu),) if fgpu else ()
        past.note(
            RunningSession(pk, owner, 0, 0, 0, shares, started_at, None, project, image_id=image, stem=stem_of(name)),
            ended_at,
        )
    return past


def load_calibrations(group_id: int | None) -> dict[int, Calibration]:
    """Return by group how its last starts compared with what was told first, and what is told who waits; one query."""
    found: dict[int, Calibration] = {}
    for session_id, group, estimated_at, placed_at, is_by_limits, *first in _estimates(group_id):
        calibration = found.setdefault(group, Calibration())
        calibration.await_start(session_id, estimated_at, StartRange(*first), is_known=not is_by_limits)
        if placed_at is not None:
            calibration.start(session_id, placed_at)
    return found


def _estimates(
    group_id: int | None,
) -> Iterable[tuple[str, int, datetime, datetime | None, bool, datetime, datetime, datetime]]:
    place = Window(RowNumber(), partition_by="group", order_by=F("placed_at").desc(nulls_last=True))
    rows: QuerySet[StartForecast] = StartForecast.objects.filter(
        Q(placed_at__isnull=False) | Q(session__status=Status.PENDING)
    )
    if group_id is not None:
        rows = rows.filter(group=group_id)
    counted = rows.annotate(place=place).filter(Q(place__lte=OUTCOMES) | Q(placed_at=None))
    return counted.order_by(F("placed_at").asc(nulls_last=True)).values_list(
        *("session_id", "group_id", "created_at", "placed_at", "first_by_limits"),
        *("first_likely", "first_from", "first_until"),
    )
