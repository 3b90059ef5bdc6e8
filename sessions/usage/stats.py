"""What a session uses: the last hour as it was recorded, or its whole life in a bounded number of points."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from resources.gpus.shares import share_bytes
from sessions.models import Session, SessionUsage, UsageHistory
from sessions.usage.points import FIELDS, FIRST_STEP_SECONDS, UsagePoints

LAST_HOUR: Final = timedelta(hours=1)


class StatsWindow(StrEnum):
    """The span that statistics cover."""

    HOUR = "hour"  # the last hour, of its life where it has ended
    LIFE = "life"  # from its start on


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Points of `step` each, oldest first, and what the session may use: amounts in bytes and thousandths of a core.

    A point has its time, the most memory, and the mean of all else; null is what could not be measured.
    `gpu_memory_share` is the session's part of `gpu_memory_cards`; both are None without a GPU.
    """

    window: StatsWindow
    step: timedelta
    cpu_milli: int
    memory: int
    gpu_memory_share: int | None
    gpu_memory_cards: int | None
    points: list[dict[str, Any]]


def stats_of(session: Session, now: datetime, window: StatsWindow | None = None) -> Stats:
    """Return the recorded use of the session; two queries, and those for its shares.

    Without a window that is the last hour while it runs, and its whole life once it has ended.
    """
    chosen = window or (StatsWindow.LIFE if session.is_final else StatsWindow.HOUR)
    history = UsageHistory.objects.filter(session=session).first()
    if chosen == StatsWindow.HOUR:
        since = (session.ended_at or now) - LAST_HOUR
        rows = session.usages.filter(at__gte=since).order_by("at")
        step, points = timedelta(seconds=FIRST_STEP_SECONDS), [_point(row.at, _values(row)) for row in rows]
    else:
        step, points = _life(session, history)
    share, cards = _gpu_memory(session, history)
    fraction = share / cards if share and cards else None
    for point in points:
        point["gpu_share_utilisation"] = share_percent(point["gpu_utilisation"], fraction)
    return Stats(
        window=chosen,
        step=step,
        cpu_milli=session.cpu * 1000,
        memory=session.memory,
        gpu_memory_share=share,
        gpu_memory_cards=cards,
        points=points,
    )


def share_percent(of_cards: int | None, fraction: float | None) -> int | None:
    """Return percent of the cards' time as percent of the session's `fraction` of it; None where either is."""
    return None if of_cards is None or not fraction else min(100, round(of_cards / fraction))


def _life(session: Session, history: UsageHistory | None) -> tuple[timedelta, list[dict[str, Any]]]:
    """Return step and points of the whole life, what was not yet added to the history included."""
    rows = session.usages.order_by("at")
    if history is not None:
        rows = rows.filter(at__gt=history.folded_until)
    fresh = list(rows)
    begun = history.begun_at if history else session.started_at or session.created_at
    points = UsagePoints(history.points, history.step_seconds) if history else UsagePoints([])
    points = points.fold(_records(fresh, begun))
    step = timedelta(seconds=points.step_seconds)
    return step, [_point(begun + (int(point[0] or 0) + 1) * step, point[2:]) for point in points.points]


def _records(rows: Iterable[SessionUsage], begun: datetime) -> Iterable[tuple[float, list[int | None]]]:
    return (((row.at - begun).total_seconds(), _values(row)) for row in rows)


def _values(row: SessionUsage) -> list[int | None]:
    return [getattr(row, name) for name in FIELDS]


def _point(at: datetime, values: Iterable[int | None]) -> dict[str, Any]:
    return {"at": at, **dict(zip(FIELDS, values, strict=True))}


def _gpu_memory(session: Session, history: UsageHistory | None) -> tuple[int | None, int | None]:
    """Return the session's part of its cards' memory, and all of theirs, in bytes; as recorded once it has ended."""
    capacity = session.resource_group.gpu_capacity
    shares = [share for share, _ in session.held_shares]
    if shares:
        part = sum(share_bytes(share.gpu.memory, share.milli, capacity) for share in shares)
        return part, sum(share.gpu.memory for share in shares)
    return (history.gpu_memory_share, history.gpu_memory_cards) if history else (None, None)
