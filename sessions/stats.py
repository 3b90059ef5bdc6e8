"""What a session used of its GPUs over the last day, in few enough points for a plot."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Avg, FloatField, Max, Value
from django.db.models.functions import Extract, Floor

from sessions.models import Session

POINTS: Final = 240
MIN_STEP: Final = timedelta(seconds=10)  # the watchdog writes no more often
KEPT: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Points of at most `step` each, oldest first: the moment, most bytes held, mean percent of the devices' time.

    `gpu_memory_share` are the bytes that the session may hold; None once it holds no lease.
    """

    step: timedelta
    gpu_memory_share: int | None
    points: list[dict[str, Any]]


def stats_of(session: Session, now: datetime) -> Stats:
    """Return what is recorded of the session; one query beside those for its shares."""
    until = session.ended_at or now
    since = max(now - KEPT, session.started_at or session.created_at)
    span = max(until - since, timedelta())
    step = max(MIN_STEP, timedelta(seconds=math.ceil(span.total_seconds() / POINTS)))
    rows = (
        session.usages.filter(at__gte=since)
        .annotate(slot=Floor((Extract("at", "epoch") - Value(since.timestamp(), FloatField())) / step.total_seconds()))
        .order_by("slot")
        .values("slot")
        .annotate(moment=Max("at"), memory=Max("gpu_memory"), utilisation=Avg("gpu_utilisation"))
    )
    points = [
        {
            "at": row["moment"],
            "gpu_memory": row["memory"],
            "gpu_utilisation": None if row["utilisation"] is None else round(row["utilisation"], 1),
        }
        for row in rows
    ]
    return Stats(step=step, gpu_memory_share=_share(session), points=points)


def _share(session: Session) -> int | None:
    capacity = session.resource_group.gpu_capacity
    shares = [share.gpu.memory * share.milli // capacity for share, _ in session.held_shares]
    return sum(shares) if shares else None
