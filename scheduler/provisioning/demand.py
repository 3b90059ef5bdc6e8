"""Which hosts a pool is to ask for: its budget, what comes already, and what-if placement of those who wait."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from resources.models import COMING, ElasticHost, ElasticPool, ElasticState, HostStatus
from scheduler.advice.estimate import state_after_pass
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.provisioning import Budget, hosts_wanted
from scheduler.core.types import HostType
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.snapshot.elastic_hosts import budget_of, join_time, shared_root_ids, types_of

MAX_CONSIDERED: Final = 500  # of those who wait, the first: more hosts than they need are not made at once


class WaitQueues:
    """Who waits, as the scheduler's next pass would leave them, and when they start on the hosts that there are."""

    def __init__(self) -> None:
        self._covered: set[str] = set()  # by the hosts of pools that were looked at before

    def wanted(
        self, pool: ElasticPool, coming: Sequence[HostType], types: Sequence[HostType], budget: Budget, now: datetime
    ) -> tuple[HostType, ...]:
        """Return the hosts that a pool is to make for those who would start sooner on them than without.

        The state is read after `coming`, so that a host that has come since is on both sides rather than on none.
        """
        state, _ = state_after_pass(now)
        starts, by_then = state.starts(now, LOOK_AHEAD), now + join_time(pool)
        queue = [
            request
            for request in state.in_order(pool.group_id, now, MAX_CONSIDERED)
            if request.id not in self._covered and _starts_later(starts.get(request.id), by_then)
        ]
        found = hosts_wanted(queue, state.cluster.limits, coming, types, budget)
        self._covered |= found.covered
        return found.hosts


def _starts_later(start: StartEstimate | None, at: datetime) -> bool:
    return start is None or start.at > at


def new_hosts(pool: ElasticPool, live: Sequence[ElasticHost], queues: WaitQueues, now: datetime) -> list[HostType]:
    """Return the types of the hosts that a pool is to ask for now, those that it has without need included."""
    if not pool.is_enabled or not pool.group.is_active or (pool.retry_at is not None and pool.retry_at > now):
        return []
    types = types_of(pool, shared_root_ids())
    budget = budget_of(pool, live, now)
    on_their_way = [types[host.type_name] for host in coming(live, types)]
    found = list(queues.wanted(pool, on_their_way, [*types.values()], budget, now))
    cheapest = min(types.values(), key=lambda kind: (kind.cost_milli, kind.name))
    while len(live) + len(found) < pool.min_hosts and budget.less(found).allows(cheapest, 1):
        found.append(cheapest)
    return found


def coming(live: Sequence[ElasticHost], types: dict[str, HostType]) -> list[ElasticHost]:
    """Return the hosts that do not take sessions yet, or not at the moment, but will."""
    return [
        host
        for host in live
        if host.type_name in types
        and (
            host.state in COMING
            or (host.state == ElasticState.UP and host.host is not None and host.host.status == HostStatus.JOINING)
        )
    ]
