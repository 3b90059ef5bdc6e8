"""How well estimates hold: sessions of a trace are told on arrival when they start, and then start when they do."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Final

from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.types import Snapshot
from scheduler.simulation.simulator import Job

SLACK: Final = (1.0, 1.25, 1.5, 2.0, 4.0)  # times as long as they need do people give their sessions
MINUTE: Final = timedelta(minutes=1)


@dataclass(slots=True)
class _Replay:
    """The platform as the sessions meet it."""

    state: IncrementalState
    lasts: dict[str, timedelta]
    ends: list[tuple[datetime, str]] = field(default_factory=list)
    started: dict[str, datetime] = field(default_factory=dict)
    kept_from: dict[str, datetime] = field(default_factory=dict)  # for who was first in line, as told at first

    def advance(self, until: datetime | None) -> None:
        """Let sessions end up to then, and give what they held to those who wait."""
        while self.ends and (until is None or self.ends[0][0] <= until):
            at, session_id = heappop(self.ends)
            (group,) = self.state.cluster.groups.values()
            self.state.update([group.running[session_id]], [])
            self.serve(at)

    def serve(self, now: datetime) -> None:
        """Start those who can."""
        for placement in self.state.serve(now):
            self.started[placement.session_id] = now
            heappush(self.ends, (now + self.lasts[placement.session_id], placement.session_id))
        for group in self.state.cluster.groups.values():
            if group.head is not None and group.reservation is not None and group.reservation.at is not None:
                self.kept_from.setdefault(group.head.id, group.reservation.at)


def calibrate(world: Snapshot, jobs: Sequence[Job]) -> dict[str, float]:
    """Return how far the first estimates of those who waited were off, in minutes, and how many had one.

    Time limits are what a session will need, and up to four times as much.
    """
    random = Random(1)
    replay = _Replay(IncrementalState(world), {job.request.id: job.runs_for for job in jobs})
    promised: dict[str, datetime | None] = {}
    for job in jobs:
        limit = job.runs_for * random.choice(SLACK)
        now = job.request.queued_at
        replay.advance(now)
        replay.state.add(job.request._replace(duration=limit))
        replay.serve(now)
        if job.request.id not in replay.started:
            start = replay.state.starts(now, LOOK_AHEAD).get(job.request.id)
            promised[job.request.id] = start and start.at
    replay.advance(None)
    met = [(at, replay.started[name]) for name, at in promised.items() if at is not None and name in replay.started]
    early = [(at - start) / MINUTE for at, start in met]
    return {
        "waited": len(promised),
        "told_percent": round(100 * len(met) / max(1, len(promised)), 1),
        "median_absolute_error_minutes": round(statistics.median(map(abs, early)), 1) if early else 0.0,
        "later_than_told_percent": round(100 * sum(minutes < 0 for minutes in early) / max(1, len(early)), 1),
        "were_first_in_line": len(replay.kept_from),
        "first_in_line_later_than_told": sum(replay.started[name] > at for name, at in replay.kept_from.items()),
    }
