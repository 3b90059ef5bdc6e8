"""Which hosts a pool is to ask for: its budget, what comes already, and what-if placement of those who wait."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from resources.models import COMING, ElasticHost, ElasticPool, ElasticState, HostStatus
from scheduler.advice.estimate import state_after_pass
from scheduler.core.capacity.host_types import could_hold
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.provisioning import Budget, hosts_wanted
from scheduler.core.types import HostType, SessionRequest
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.snapshot.elastic_hosts import budget_of, join_time, live_hosts, shared_root_ids, types_of

FRESH: Final = timedelta(seconds=30)  # of a host that has come: a pass has seen it, with all that it reports
MAX_CONSIDERED: Final = 500  # of those who wait, the first: more hosts than they need are not made at once


def _wanted(
    pool: ElasticPool, live: Sequence[ElasticHost], types: dict[str, HostType], budget: Budget, now: datetime
) -> list[HostType]:
    """Return the hosts that a pool is to make for those who would start sooner on them than without.

    The state is read after `live`, so that a host that has come since is on both sides rather than on none.
    """
    state, *_ = state_after_pass(now)
    state.cluster.outlooks = {}  # a copy: when they would start without what comes
    starts, by_then = state.starts(now, LOOK_AHEAD), now + join_time(pool)

    def queue_of(group_id: int) -> list[SessionRequest]:
        first = state.in_order(group_id, now, MAX_CONSIDERED)
        return [request for request in first if _starts_later(starts.get(request.id), by_then)]

    queue, limits = queue_of(pool.group_id), state.cluster.limits
    if any(request.alternatives or request.is_alternative for request in queue):
        covered = set[str]()  # by what comes for other groups in which they wait, too
        for other in ElasticPool.objects.filter(is_enabled=True, group__is_active=True).exclude(pk=pool.pk):
            kinds = coming(list(live_hosts(other)), types_of(other, shared_root_ids()), now)
            if kinds:
                covered |= hosts_wanted(queue_of(other.group_id), limits, kinds, (), Budget(0)).covered
        queue = [request for request in queue if request.id not in covered]
    return list(hosts_wanted(queue, limits, coming(live, types, now), [*types.values()], budget).hosts)


def hosts_of_no_use(pool: ElasticPool, rows: Sequence[ElasticHost], now: datetime) -> set[int]:
    """Return the ids of those of these hosts, which nobody uses, that do not hold what their types promise.

    Somebody waits whom a host of the type could take, but not this one. Those that came just now may not have reported
    all that they have. The state is read once, however many there are.
    """
    rows = [row for row in rows if now - row.state_at >= FRESH]
    if not rows:
        return set()
    types, (state, *_) = types_of(pool, shared_root_ids()), state_after_pass(now)
    group = state.cluster.groups.get(pool.group_id)
    if group is None:
        return set()
    waiting = [
        request
        for request in state.in_order(pool.group_id, now, MAX_CONSIDERED)
        if request.members == 1
        and now - request.queued_at >= FRESH
        and not state.cluster.limits.are_exceeded_by(request)
    ]
    promising = {name for name, kind in types.items() if any(could_hold(kind, request.shape) for request in waiting)}
    used = {session.host_id for session in group.running.values()}
    idle = {row.pk: group.host_capacities.get(row.host_id or 0) for row in rows if row.host_id not in used}
    return {
        row.pk
        for row in rows
        if row.type_name in promising and (capacity := idle.get(row.pk)) is not None and not capacity.is_reserved
    }


def _starts_later(start: StartEstimate | None, at: datetime) -> bool:
    return start is None or start.at > at


def new_hosts(pool: ElasticPool, live: Sequence[ElasticHost], now: datetime) -> list[HostType]:
    """Return the types of the hosts that a pool is to ask for now, those that it has without need included."""
    if not pool.is_enabled or not pool.group.is_active or (pool.retry_at is not None and pool.retry_at > now):
        return []
    types = types_of(pool, shared_root_ids())
    budget = budget_of(pool, live, now)
    found = _wanted(pool, live, types, budget, now)
    cheapest = min(types.values(), key=lambda kind: (kind.cost_milli, kind.name))
    while len(live) + len(found) < pool.min_hosts and budget.less(found).allows(cheapest, 1):
        found.append(cheapest)
    return found


def coming(live: Sequence[ElasticHost], types: dict[str, HostType], now: datetime) -> list[HostType]:
    """Return the types of the hosts that do not take sessions yet, or not at the moment, but will."""
    return [types[row.type_name] for row in live if row.type_name in types and _is_coming(row, now)]


def _is_coming(row: ElasticHost, now: datetime) -> bool:
    if row.state != ElasticState.UP or row.host is None:
        return row.state in COMING
    is_fresh = now - row.state_at < FRESH and row.idle_since is not None
    return is_fresh or row.host.status == HostStatus.JOINING
