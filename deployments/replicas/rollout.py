"""How many replicas to launch and which to drain: of a rollout, a change of their number, or neither. Pure.

As in a rolling update of Kubernetes: at most `surge` replicas beyond those wanted, and at most `unavailable` of them
missing. Those that drain count for neither, since they leave by themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

FAILURES_BEFORE_RETURN: Final = 3  # of a new revision in a row, before any of its replicas was healthy
BACKOFF: Final = timedelta(seconds=10)  # after a failed replica; doubled by each further one
BACKOFF_LIMIT: Final = timedelta(minutes=5)
PROVEN_AFTER: Final = timedelta(minutes=10)  # of health, after which earlier failures are forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFact:
    """A replica that neither drains nor has ended."""

    id: str
    is_current: bool  # it runs what is wanted, and was launched since the last restart
    is_ready: bool  # requests go to it
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """The next step towards what is wanted."""

    launches: int = 0
    drains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PastReplica:
    """A replica of the current revision that has ended, or is given up."""

    has_failed: bool  # by itself: nobody has ended it
    created_at: datetime
    healthy_at: datetime | None
    ended_at: datetime


def plan(
    *, wanted: int, surge: int, unavailable: int, replicas: Sequence[ReplicaFact], may_launch: bool = True
) -> RolloutPlan:
    """Return the next step. Of the replicas that take requests it leaves as many as are to be available."""
    drained = [*_surplus(wanted, replicas), *_outdated(_floor(wanted, surge, unavailable), wanted, replicas)]
    gone = {replica.id for replica in drained}
    left = [replica for replica in replicas if replica.id not in gone]
    current = sum(replica.is_current for replica in left)
    launches = max(0, min(wanted - current, wanted + surge - len(left))) if may_launch else 0
    return RolloutPlan(launches=launches, drains=tuple(replica.id for replica in drained))


def _floor(wanted: int, surge: int, unavailable: int) -> int:
    """Return how many replicas must stay available: one at least, where another may be launched beside it."""
    return max(wanted - unavailable, min(wanted, 1) if surge else 0)


def _surplus(wanted: int, replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Return the current replicas beyond those wanted: first those that take no requests, then the youngest."""
    current = [replica for replica in replicas if replica.is_current]
    return _least_useful_first(current)[: max(0, len(current) - wanted)]


def _outdated(floor: int, wanted: int, replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Return the outdated replicas that can go: those without requests, and of the others all above the floor."""
    current_ready = min(wanted, sum(replica.is_current and replica.is_ready for replica in replicas))
    outdated = _least_useful_first([replica for replica in replicas if not replica.is_current])
    ready = [replica for replica in outdated if replica.is_ready]
    spare = max(0, min(len(ready), current_ready + len(ready) - floor))
    return [replica for replica in outdated if not replica.is_ready] + ready[:spare]


def _least_useful_first(replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    youngest_first = sorted(replicas, key=lambda replica: (replica.created_at, replica.id), reverse=True)
    return sorted(youngest_first, key=lambda replica: replica.is_ready)


def failures_in_row(past: Sequence[PastReplica]) -> int:
    """Return how often the last replicas have failed, without one that served for long among them.

    Replicas that fail together are one failure: such as were launched after another had failed count beside it.
    """
    last: list[PastReplica] = []
    for replica in sorted(past, key=lambda each: each.ended_at, reverse=True):
        if replica.healthy_at is not None and replica.ended_at - replica.healthy_at >= PROVEN_AFTER:
            break
        if replica.has_failed:
            last.append(replica)
    count, began_at = 0, None
    for replica in sorted(last, key=lambda each: each.created_at, reverse=True):
        if began_at is None or replica.ended_at <= began_at:
            count, began_at = count + 1, replica.created_at
    return count


def launch_after(past: Sequence[PastReplica]) -> datetime | None:
    """Return until when no replica is launched, since the last ones have failed; None: at once."""
    failures = failures_in_row(past)
    if not failures:
        return None
    last = max(replica.ended_at for replica in past if replica.has_failed)
    doublings: int = 2 ** min(failures - 1, 10)
    return last + min(BACKOFF_LIMIT, BACKOFF * doublings)


def must_return(past: Sequence[PastReplica], *, was_any_healthy: bool) -> bool:
    """Return whether a new revision is given up: its replicas have failed, and none was ever healthy."""
    return not was_any_healthy and failures_in_row(past) >= FAILURES_BEFORE_RETURN
