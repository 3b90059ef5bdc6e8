"""Queue order: first come first served with priorities that age, or fair share. Pure.

In a FIFO group a point of priority counts as much as waiting for `Rules.ageing`: a session of priority p that joined at
t ranks as one of priority 0 that joined p * `ageing` earlier. That moment never changes, so waiting never worsens a
position, and a request that comes much later ranks behind, whatever its priority.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace
from typing import Any

from scheduler.core.fair_share import FairShares
from scheduler.core.types import QueueOrder, Rules, SessionRequest

FairSharesOf = Callable[[int], FairShares | None]  # by group id; None for groups without hosts
DEFAULT = Rules()


def bonus_of(priority: int, rules: Rules) -> timedelta:
    """Return how much earlier a session of priority 0 would have had to join for the same rank."""
    return priority * rules.ageing


def sequence(
    queue: Iterable[SessionRequest], rules: Mapping[int, Rules], shares_of: FairSharesOf, now: datetime
) -> Iterator[SessionRequest]:
    """Yield the requests in the order to serve: those of all FIFO groups, then those of each fair group.

    The shares are asked at each step of a fair group, so that a start counts at once.
    """
    fair: dict[int, list[SessionRequest]] = {}
    bonus: dict[tuple[int, int], timedelta] = {}
    fifo: list[SessionRequest] = []
    for request in queue:
        group_id, priority = request.group_id, request.priority
        if (group_id, priority) not in bonus:
            bonus[group_id, priority] = bonus_of(priority, rules.get(group_id, DEFAULT))
        if group_id in rules and rules[group_id].queue_order == QueueOrder.FAIR:
            fair.setdefault(group_id, []).append(request)
        else:
            fifo.append(request)
    fifo.sort(key=lambda request: request.queued_at - bonus[request.group_id, request.priority])
    yield from fifo
    for group_id in sorted(fair):
        shares = shares_of(group_id)
        yield from fair[group_id] if shares is None else fair_sequence(fair[group_id], shares, now)


def fair_sequence(requests: Iterable[SessionRequest], shares: FairShares, now: datetime) -> Iterator[SessionRequest]:
    """Yield the requests of one group by fair share: each user's in order, next always that of the lowest rank.

    A user's own sessions are ordered by priority, then by time.
    """
    by_owner: dict[int, list[tuple[int, datetime, int, SessionRequest]]] = {}
    for position, request in enumerate(requests):
        mine = by_owner.setdefault(request.owner_id, [])
        mine.append((-request.priority, request.queued_at, position, request))
    active_weight = shares.active_weight(by_owner)

    def entry(owner_id: int) -> tuple[Any, ...]:
        _, since, position, request = by_owner[owner_id][-1]
        return shares.key(request, now, active_weight), since, position, owner_id

    for mine in by_owner.values():
        mine.sort(reverse=True)
    heap = [entry(owner_id) for owner_id in by_owner]
    heapify(heap)
    while heap:
        owner_id = heap[0][-1]
        mine = by_owner[owner_id]
        yield mine.pop()[-1]
        if mine:
            heapreplace(heap, entry(owner_id))
        else:
            heappop(heap)
