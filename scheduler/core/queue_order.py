"""Who is served first: priority with ageing, then first come first served or dominant-resource fairness. Pure.

A point of priority counts as much as `Rules.ageing` of waiting, so a session of priority p that joined at t stands as
one of priority 0 that joined p times `ageing` earlier. Since that moment never changes, nobody's place gets worse by
waiting, and who comes much later stands behind, whatever its priority.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace

from scheduler.core.types import QueueOrder, Rules, SessionRequest

Share = Callable[[int, int], int]  # (group id, user id) -> what the user holds of the group now; comparable
DEFAULT = Rules()


def bonus_of(priority: int, rules: Rules) -> timedelta:
    """Return by how much earlier a session of priority 0 would have had to join to stand in the same place."""
    return priority * rules.ageing


def sequence(
    queue: Iterable[SessionRequest], rules: Mapping[int, Rules], share: Share, now: datetime
) -> Iterator[SessionRequest]:
    """Yield the requests as they are to be served: all that are first come first served, then each fair group's.

    `share` is asked again for every step of a fair group, so whoever has just been served stands back at once.
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
        yield from fairly(fair[group_id], rules[group_id], share, now)


def fairly(requests: Iterable[SessionRequest], rules: Rules, share: Share, now: datetime) -> Iterator[SessionRequest]:
    """Yield the requests of one group: the highest band first, in it those of the user who holds least, oldest first.

    A band is a point of priority, waiting counted in; within it nobody is ahead by having waited a little longer.
    """
    lines: dict[int, list[tuple[int, datetime, int, SessionRequest]]] = {}
    for place, request in enumerate(requests):
        band = request.priority + (now - request.queued_at) // rules.ageing
        lines.setdefault(request.owner_id, []).append((-band, request.queued_at, place, request))
    turns = []
    for owner_id, queue in lines.items():
        queue.sort(reverse=True)
        band, since, place, request = queue[-1]
        turns.append((band, share(request.group_id, owner_id), since, place, owner_id))
    heapify(turns)
    while turns:
        owner_id = turns[0][-1]
        queue = lines[owner_id]
        request = queue.pop()[-1]
        yield request
        if queue:
            band, since, place, request = queue[-1]
            heapreplace(turns, (band, share(request.group_id, owner_id), since, place, owner_id))
        else:
            heappop(turns)
