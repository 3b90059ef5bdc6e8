"""Estimates that learn, on a trace: when sessions start by the past of their like, against EASY with users' limits.

Openb names no users and no time limits. Who asks for the same amounts is taken for the same user; limits are made by
the f-model (Mu'alem and Feitelson 2001), one to five times the run time, rounded up to the values that people write
(Tsafrir, Etsion and Feitelson 2005), so that nothing is known of a session but what a platform knows.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Final

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.types import LimitHolder, SessionRequest, Shape, Snapshot
from scheduler.core.waiting.calibration import Calibration, StartRange
from scheduler.core.waiting.run_times import RunTimes
from scheduler.simulation.simulator import Job

MINUTE: Final = timedelta(minutes=1)
HOUR_MINUTES: Final = 60
DAY_MINUTES: Final = 24 * HOUR_MINUTES
USUAL_LIMITS: Final = (5, 10, 15, 30, *(HOUR_MINUTES * hours for hours in (1, 2, 3, 4, 6, 8, 12)))
MAX_OVER: Final = 4.0  # times the run time, by which a limit is at most beyond it
ALIKE: Final = timedelta()  # prediction of all where nothing orders who starts behind the head, as in EASY
SHORTEST: Final = timedelta(seconds=10)  # of a bounded slowdown: shorter runs count as this


@dataclass(slots=True)
class _Replay:
    """Replay of a trace in which predictions order who starts behind the head, or, as in EASY, nothing does."""

    state: IncrementalState
    run_times: dict[str, timedelta]
    learns: bool
    past: RunTimes = field(default_factory=RunTimes)
    calibration: Calibration = field(default_factory=Calibration)
    ends: list[tuple[datetime, str]] = field(default_factory=list)
    started: dict[str, datetime] = field(default_factory=dict)
    ranges: dict[str, StartRange | None] = field(default_factory=dict)  # by session that waited
    reserved_at: dict[str, datetime] = field(default_factory=dict)  # by head: start of its first reservation

    def submit(self, request: SessionRequest) -> None:
        """Add a request once all has ended that ends by then, and tell who waits when it is likely to start."""
        now = request.queued_at
        self.advance(now)
        self.state.add(self.past.predicted(request) if self.learns else request._replace(predicted=ALIKE))
        self.serve(now)
        if self.learns and request.id not in self.started:
            likely = self.state.likely_starts(now, LOOK_AHEAD, self.past).get(request.id)
            latest = self.state.starts(now, LOOK_AHEAD).get(request.id)
            self.ranges[request.id] = (
                None
                if likely is None
                else self.calibration.tell(
                    request.id,
                    now,
                    likely,
                    None if latest is None else latest.at,
                    is_known=self.past.is_known_beside(self.state.cluster.running_count),
                )
            )

    def advance(self, until: datetime | None) -> None:
        """End the sessions up to then, with a pass after each."""
        while self.ends and (until is None or self.ends[0][0] <= until):
            at, session_id = heappop(self.ends)
            (group,) = self.state.cluster.groups.values()
            self.past.note(group.running[session_id], at)
            self.state.update([group.running[session_id]], [])
            self.serve(at)

    def serve(self, now: datetime) -> None:
        """Run a pass."""
        for placement in self.state.serve(now):
            name = placement.session_id
            self.started[name] = now
            heappush(self.ends, (now + self.run_times[name], name))
            self.calibration.start(name, now)
        for group in self.state.cluster.groups.values():
            if group.head is not None and group.reservation is not None and group.reservation.at is not None:
                self.reserved_at.setdefault(group.head.id, group.reservation.at)

    def slowdown(self, jobs: Sequence[Job]) -> float:
        """Return the mean bounded slowdown of those that started."""
        return statistics.mean(
            (self.started[job.request.id] - job.request.queued_at + run) / run
            for job in jobs
            if job.request.id in self.started and (run := max(job.runs_for, SHORTEST))
        )


def learned_estimates(world: Snapshot, jobs: Sequence[Job]) -> dict[str, float]:
    """Return how the first ranges compare with the starts, in percent of those that waited, and with EASY."""
    jobs = with_users(jobs)
    owners = {job.request.owner_id: LimitHolder(limits=PolicyLimits(), used=Amounts()) for job in jobs}
    replays = [replay(replace(world, owners=owners), jobs, learns=learns) for learns in (False, True)]
    easy, learned = replays
    met = [
        (stated, learned.started[name])
        for name, stated in learned.ranges.items()
        if stated is not None and name in learned.started
    ]
    some, waited = max(1, len(met)), sum(name in learned.started for name in learned.ranges)
    return {
        "told": round(100 * len(met) / max(1, waited), 1),
        "median_error_minutes": round(
            statistics.median(abs(start - stated.likely) / MINUTE for stated, start in met) if met else 0.0, 1
        ),
        "later_than_range": round(100 * sum(start > stated.starts_until for stated, start in met) / some, 1),
        "earlier_than_range": round(100 * sum(start < stated.starts_from for stated, start in met) / some, 1),
        "median_range_minutes": round(
            statistics.median((stated.starts_until - stated.starts_from) / MINUTE for stated, _ in met) if met else 0.0,
            1,
        ),
        "slowdown_ratio_to_easy": round(learned.slowdown(jobs) / easy.slowdown(jobs), 3),
        "mean_slowdown": round(learned.slowdown(jobs), 2),
        "longest_wait_ratio_to_easy": round(longest_wait(learned, jobs) / max(MINUTE, longest_wait(easy, jobs)), 3),
        "heads_later_than_told": sum(
            each.started[name] > at for each in replays for name, at in each.reserved_at.items() if name in each.started
        ),
    }


def replay(world: Snapshot, jobs: Sequence[Job], *, learns: bool) -> _Replay:
    """Return the outcome of a replay."""
    found = _Replay(IncrementalState(world), {job.request.id: job.runs_for for job in jobs}, learns)
    for job in jobs:
        found.submit(job.request)
    found.advance(None)
    return found


def longest_wait(outcome: _Replay, jobs: Sequence[Job]) -> timedelta:
    """Return the longest wait of those that started."""
    return max(
        (outcome.started[name] - job.request.queued_at for job in jobs if (name := job.request.id) in outcome.started),
        default=timedelta(),
    )


def with_users(jobs: Sequence[Job], max_over: float = MAX_OVER) -> list[Job]:
    """Return the sessions with a user for each shape, and a time limit as users would set it."""
    random, users = Random(1), dict[Shape, int]()
    return [
        job._replace(
            request=job.request._replace(
                owner_id=users.setdefault(job.request.shape, len(users) + 1),
                duration=_limit(job.runs_for * (1 + max_over * random.random())),
            )
        )
        for job in jobs
    ]


def _limit(least: timedelta) -> timedelta:
    """Return the first usual limit that is no less; above half a day whole days."""
    minutes = -(-least // MINUTE)
    usual = next((each for each in USUAL_LIMITS if each >= minutes), -(-minutes // DAY_MINUTES) * DAY_MINUTES)
    return usual * MINUTE
