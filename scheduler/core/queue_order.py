"""Queue order: priority with ageing, then first come first served or dominant-resource fairness. Pure.

A point of priority counts as much as waiting for `Rules.ageing`: a session of priority p that joined at t ranks as one
of priority 0 that joined p * `ageing` earlier. That moment never changes, so waiting never worsens a position, and a
request that comes much later ranks behind, whatever its priority.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace

from scheduler.core.types import QueueOrder, Rules, SessionRequest

DominantShareOf = Callable[[int, int], int]  # (group id, user id) -> the user's dominant share now
DEFAULT = Rules()


def bonus_of(priority: int, rules: Rules) -> timedelta:
    """Return how much earlier a session of priority 0 would have had to join for the same rank."""
    return priority * rules.ageing


def sequence(
    queue: Iterable[SessionRequest], rules: Mapping[int, Rules], share_of: DominantShareOf, now: datetime
) -> Iterator[SessionRequest]:
    """Yield the requests in the order to serve: those of all FIFO groups, then those of each fair group.

    `share_of` is called at each step of a fair group, so that a start counts at once.
    """
    fair: dict[int, list[SessionRequest]] = {}
    bonus: dict[tuple[int, int], timedelta] = {}
    fifo: list[SessionRequest] = []
    for request in queue:
        group_id, priority = request.group_id, request.priority
        if (group_id, priority) not in bonus:
            bonus[group_id, priority] = bonus_of(priority, rules.get(group_id, DEFAULT))
        if group_id in rules and rules[group_id].queue_order == QueueOrder.DRF:
            fair.setdefault(group_id, []).append(request)
        else:
            fifo.append(request)
    fifo.sort(key=lambda request: request.queued_at - bonus[request.group_id, request.priority])
    yield from fifo
    for group_id in sorted(fair):
        yield from fair_sequence(fair[group_id], rules[group_id], share_of, now)


def fair_sequence(
    requests: Iterable[SessionRequest], rules: Rules, share_of: DominantShareOf, now: datetime
) -> Iterator[SessionRequest]:
    """Yield the requests of one group by dominant-resource fairness (DRF; Ghodsi et al., NSDI 2011), in bands.

    A band is one point of priority, waiting included. Within a band the next request is the oldest of the user with the
    lowest dominant share: a slightly longer wait gives no precedence.
    """
    by_owner: dict[int, list[tuple[int, datetime, int, SessionRequest]]] = {}
    for position, request in enumerate(requests):
        band = request.priority + (now - request.queued_at) // rules.ageing
        by_owner.setdefault(request.owner_id, []).append((-band, request.queued_at, position, request))
    heap = []
    for owner_id, own in by_owner.items():
        own.sort(reverse=True)
        band, since, position, request = own[-1]
        heap.append((band, share_of(request.group_id, owner_id), since, position, owner_id))
    heapify(heap)
    while heap:
        owner_id = heap[0][-1]
        own = by_owner[owner_id]
        request = own.pop()[-1]
        yield request
        if own:
            band, since, position, request = own[-1]
            heapreplace(heap, (band, share_of(request.group_id, owner_id), since, position, owner_id))
        else:
            heappop(heap)
