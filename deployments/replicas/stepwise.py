"""Rollouts that keep all old replicas while the new revision proves itself: canary and blue/green. Pure.

The replicas of the new revision, and all others, are two sets that are kept apart: each is brought to its own number by
`rollout.plan`, within the same limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from math import ceil
from typing import Final

from deployments.replicas import rollout
from deployments.replicas.rollout import ReplicaFact, RolloutPlan

MIN_REQUESTS: Final = 50  # that the new revision has answered in a step, before it is compared
NOTICED_SECONDS: Final = 0.02  # by which it is slower at least: of durations of 1 ms, noise alone is several times
QUIET_STEPS: Final = 3  # times the time of a step without any request, after which there is nothing to compare


class Move(Enum):
    """What becomes of a step."""

    STAY = "stay"
    BEGIN = "begin"  # its replicas are healthy: requests go to them now, and its time runs
    NEXT = "next"
    RETURN = "return"  # to the revision before: the new one is worse


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwisePlan:
    """The next step of both sets of replicas."""

    old: RolloutPlan
    new: RolloutPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a revision has answered in a time."""

    requests: int = 0
    errors: int = 0
    p95: float | None = None  # seconds; None without requests

    @property
    def error_percent(self) -> float:
        """How many of a hundred requests have failed."""
        return 100 * self.errors / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComparison:
    """What both revisions have answered since the step began."""

    old: Answered
    new: Answered
    last_request_at: float = 0.0  # of the new one, in Unix seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRules:
    """What a step must show."""

    seconds: int
    max_error_points: float
    max_p95_ratio: float


def beside(strategy: str, *, wanted: int, surge: int, unavailable: int, steps: Sequence[int] = ()) -> tuple[int, int]:
    """Return how many replicas a rollout launches beside all that serve: at most, and those it cannot do without."""
    if strategy == "blue_green":
        return wanted, wanted
    if strategy == "canary":
        share = size(wanted, max(steps))
        return max(share, min(surge, wanted)), share
    return min(surge, wanted), 0 if unavailable else min(1, wanted)


def size(wanted: int, percent: int) -> int:
    """Return how many replicas of the new revision serve this share of the requests: one at least, if any."""
    return ceil(wanted * percent / 100)


def plan(
    *,
    wanted: int,
    percent: int,
    surge: int,
    unavailable: int,
    old: Sequence[ReplicaFact],
    new: Sequence[ReplicaFact],
    may_launch_old: bool = True,
    may_launch_new: bool = True,
) -> StepwisePlan:
    """Return the next step: all old replicas stay, and so many new ones as serve this share come beside them."""
    limits = {"surge": surge, "unavailable": unavailable}
    return StepwisePlan(
        old=rollout.plan(wanted=wanted, replicas=old, may_launch=may_launch_old, **limits),
        new=rollout.plan(wanted=size(wanted, percent), replicas=new, may_launch=may_launch_new, **limits),
    )


def is_complete(wanted: int, percent: int, new: Sequence[ReplicaFact]) -> bool:
    """Return whether as many new replicas take requests as the share needs."""
    return 0 < size(wanted, percent) <= sum(each.is_ready for each in new)


def weights(new: int, percent: int, ready: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Return how many of a hundred requests go to each revision, by their numbers.

    `ready` says how many replicas of each revision take requests. `percent` of the requests go to the revision `new`;
    the others share the rest by their replicas. Where one side has no such replica, all goes to the other. What is
    without such replicas has no weight; () without any.
    """
    others = {number: count for number, count in sorted(ready.items()) if count > 0 and number != new}
    if ready.get(new, 0) <= 0:
        percent = 0
    elif not others:
        percent = 100
    found = {new: percent} if ready.get(new, 0) > 0 else {}
    replicas, left = sum(others.values()), 100 - percent
    for number, count in others.items():
        found[number] = left * count // replicas  # of what is left, so that the last one gets all of that
        left, replicas = left - found[number], replicas - count
    return tuple(sorted(found.items()))


def canary_move(
    begun_at: datetime | None, now: datetime, *, complete: bool, compared: StepComparison | None, rules: StepRules
) -> Move:
    """Return what becomes of a step of a canary. `compared` is None while it is not known what was answered."""
    if begun_at is None:
        return Move.BEGIN if complete else Move.STAY
    step = timedelta(seconds=rules.seconds)
    if now - begun_at < step or compared is None:
        return Move.STAY
    if compared.new.requests >= MIN_REQUESTS:
        if worse(compared, rules):
            return Move.RETURN
        return Move.NEXT if complete else Move.STAY
    quiet_since = max(begun_at.timestamp(), compared.last_request_at)
    is_quiet = now.timestamp() - quiet_since >= QUIET_STEPS * rules.seconds
    return Move.NEXT if complete and is_quiet else Move.STAY


def blue_green_move(begun_at: datetime | None, now: datetime, *, complete: bool, rules: StepRules) -> Move:
    """Return what becomes of a blue/green rollout, which begins as requests switch, and ends as old replicas may go."""
    if not complete:
        return Move.STAY
    if begun_at is None:
        return Move.BEGIN
    return Move.NEXT if now - begun_at >= timedelta(seconds=rules.seconds) else Move.STAY


def worse(compared: StepComparison, rules: StepRules) -> bool:
    """Return whether the new revision fails more often, or is slower, than is accepted."""
    old, new = compared.old, compared.new
    if new.error_percent > old.error_percent + rules.max_error_points:
        return True
    if old.p95 is None or new.p95 is None or new.p95 < old.p95 + NOTICED_SECONDS:
        return False
    return new.p95 > old.p95 * rules.max_p95_ratio
