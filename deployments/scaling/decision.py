"""How many replicas a deployment wants, by its load. Pure.

As Knative's autoscaler (KPA): each rule has a target for one replica; the mean load of a stable window of 60 s says how
many replicas are needed, and that of the last 6 s where it is twice what the ready ones are for, a panic, in which
nothing is scaled down. As Kubernetes' horizontal autoscaler: down only to the most that a whole window has needed.
Of several rules the largest need counts. A rule whose load is unknown says so, and keeps what there is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from deployments.scaling.memory import PANIC_SECONDS, STABLE_SECONDS, Memory

PANIC_THRESHOLD: Final = 2.0  # times what the ready replicas are for
MAX_GROWTH: Final = 2  # times, in one step
_MOST: Final = 1e6  # replicas, so that no load is too large to count
_ROUNDING: Final = 1e-9  # of a replica, so that 0.3 / 0.1 needs three


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The settings of a deployment; times in seconds."""

    minimum: int
    maximum: int
    down_after: float = 300.0
    cooldown: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one rule that is not paused finds at this look."""

    key: str  # of what is measured: loads of the same key are the same series
    total: float | None  # of all replicas together; None: unknown
    target: float  # for one replica
    words: str  # "{total} requests outstanding, {target} a replica"

    def said(self, total: float) -> str:
        """Return the words for a load."""
        return self.words.format(total=f"{total:.4g}", target=f"{self.target:.4g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many replicas are wanted from now on, and a sentence that says why."""

    replicas: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """How many replicas are needed now, by the rule that needs most; `is_known`: no rule is without its load."""

    replicas: int
    why: str
    is_known: bool
    is_panic: bool


def decide(
    bounds: Bounds, demands: Sequence[Demand], memory: Memory, *, now: float, current: int, ready: int
) -> tuple[Decision, Memory]:
    """Return how many replicas are wanted of a deployment that now wants `current`, at least one."""
    memory = memory.at(now, current)
    memory = memory.with_sample(now, {each.key: each.total for each in demands if each.total is not None})
    need = _needed(demands, memory, now, ready)
    if need.is_panic:
        memory = replace(memory, panic_until=now + STABLE_SECONDS)
    lasting = _within(bounds, need.replicas if need.is_known else max(need.replicas, current))
    memory = memory.with_need(now, lasting, bounds.down_after)
    decision = _decision(bounds, need, memory, now, current)
    if decision.replicas != current:
        memory = replace(memory, changed_at=now, wanted=decision.replicas)
    return decision, replace(memory, note=decision.why)


def _needed(demands: Sequence[Demand], memory: Memory, now: float, ready: int) -> _Need:
    found: list[tuple[int, str]] = []
    is_panic = False
    for each in demands:
        if each.total is None:
            continue
        stable, last = (memory.mean(each.key, now, seconds) for seconds in (STABLE_SECONDS, PANIC_SECONDS))
        is_rising = replicas_for(last, each.target) >= PANIC_THRESHOLD * max(1, ready)
        is_panic = is_panic or is_rising
        counts_last = is_rising or now < memory.panic_until
        load = max(stable, last) if counts_last else stable
        found.append((replicas_for(load, each.target), each.said(load)))
    unknown = [each for each in demands if each.total is None]
    if not found:
        why = "the load is unknown" if unknown else "no rule is active"
        return _Need(replicas=0, why=why, is_known=False, is_panic=False)
    most, why = max(found, key=lambda pair: pair[0])
    return _Need(replicas=most, why=why, is_known=not unknown, is_panic=is_panic)


def _decision(bounds: Bounds, need: _Need, memory: Memory, now: float, current: int) -> Decision:
    inside = _within(bounds, current)
    if inside != current:
        why = f"at least {bounds.minimum} are to run" if inside > current else f"at most {bounds.maximum} are to run"
        return Decision(replicas=inside, why=why)
    if now - memory.changed_at < bounds.cooldown:
        return Decision(replicas=current, why=f"just scaled; {need.why}")
    if need.replicas > current:
        wanted = _within(bounds, min(need.replicas, current * MAX_GROWTH))
        limit = f", and at most {bounds.maximum} are to run" if need.replicas > bounds.maximum else ""
        return Decision(replicas=wanted, why=need.why + limit)
    if not need.is_known and need.why != "no rule is active":
        return Decision(replicas=current, why="the load is unknown to a rule, so it is not scaled down")
    most = memory.most_needed(now, bounds.down_after)
    if now < memory.panic_until or most is None or most >= current:
        return Decision(replicas=current, why=need.why)
    span = f"{bounds.down_after:g} s"
    return Decision(replicas=_within(bounds, most), why=f"no more were needed for {span}; {need.why}")


def replicas_for(load: float, target: float) -> int:
    """Return how many replicas a load needs."""
    return max(0, math.ceil(min(load / target, _MOST) - _ROUNDING))


def _within(bounds: Bounds, replicas: int) -> int:
    return min(bounds.maximum, max(bounds.minimum, replicas))


def with_use(memory: Memory, *, now: float, in_use: bool | None, ready: int) -> Memory:
    """Return the memory with whether requests came since the last look; None: unknown, which is never idle.

    A deployment none of whose replicas is ready is about to be used, or waits for somebody who sees to it.
    """
    is_idle = in_use is False and ready > 0
    return memory if is_idle else replace(memory, busy_at=now)


def is_idle(memory: Memory, *, now: float, idle_seconds: float) -> bool:
    """Return whether nobody has used the deployment for so long, without a gap in what is known."""
    return now - memory.busy_at >= idle_seconds
