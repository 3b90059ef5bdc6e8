"""Accuracy of estimates: sessions of a trace get an estimate on arrival, which is compared with their start."""

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

TIME_LIMIT_FACTORS: Final = (1.0, 1.25, 1.5, 2.0, 4.0)  # time limits, as multiples of the run time
MINUTE: Final = timedelta(minutes=1)


@dataclass(slots=True)
class _Replay:
    """Replay of a trace on the incremental state."""

    state: IncrementalState
    run_times: dict[str, timedelta]
    ends: list[tuple[datetime, str]] = field(default_factory=list)
    started: dict[str, datetime] = field(default_factory=dict)
    reserved_at: dict[str, datetime] = field(default_factory=dict)  # by head: start of its first reservation

    def advance(self, until: datetime | None) -> None:
        """End the sessions up to then, with a pass after each."""
        while self.ends and (until is None or self.ends[0][0] <= until):
            at, session_id = heappop(self.ends)
            (group,) = self.state.cluster.groups.values()
            self.state.update([group.running[session_id]], [])
            self.serve(at)

    def serve(self, now: datetime) -> None:
        """Run a pass."""
        for placement in self.state.serve(now):
            self.started[placement.session_id] = now
            heappush(self.ends, (now + self.run_times[placement.session_id], placement.session_id))
        for group in self.state.cluster.groups.values():
            if group.head is not None and group.reservation is not None and group.reservation.at is not None:
                self.reserved_at.setdefault(group.head.id, group.reservation.at)


def calibrate(world: Snapshot, jobs: Sequence[Job]) -> dict[str, float]:
    """Return the errors, in minutes, of the first estimates of sessions that waited, and how many had one.

    Time limits are one to four times the run time.
    """
    random = Random(1)
    replay = _Replay(IncrementalState(world), {job.request.id: job.runs_for for job in jobs})
    promised: dict[str, datetime | None] = {}
    for job in jobs:
        limit = job.runs_for * random.choice(TIME_LIMIT_FACTORS)
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
        "were_first_in_line": len(replay.reserved_at),
        "first_in_line_later_than_told": sum(replay.started[name] > at for name, at in replay.reserved_at.items()),
    }
