"""GPU usage of a session over the last day, down-sampled for a plot."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Avg, FloatField, Max, Value
from django.db.models.functions import Extract, Floor

from resources.shares import share_bytes
from sessions.models import Session

POINTS: Final = 240
MIN_STEP: Final = timedelta(seconds=10)  # the watchdog writes no more often
RETENTION: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Points of `step` each, oldest first: time, peak memory in bytes, mean utilisation in percent of the GPUs' time.

    `gpu_memory_share` is the memory limit in bytes; None once the session holds no lease.
    """

    step: timedelta
    gpu_memory_share: int | None
    points: list[dict[str, Any]]


def stats_of(session: Session, now: datetime) -> Stats:
    """Return the recorded usage of the session; one query, and those for its shares."""
    until = session.ended_at or now
    since = max(now - RETENTION, session.started_at or session.created_at)
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
    shares = [share_bytes(share.gpu.memory, share.milli, capacity) for share, _ in session.held_shares]
    return sum(shares) if shares else None
