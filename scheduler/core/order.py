"""Who is served first: priority with ageing, then first come first served or dominant-resource fairness. Pure.

A point of priority counts as much as `Rules.ageing` of waiting, so a session of priority p that joined at t stands as
one of priority 0 that joined p times `ageing` earlier. Since that moment never changes, nobody's place gets worse by
waiting, and who comes much later stands behind, whatever its priority.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace

from scheduler.core.terms import Order, Request, Rules

Share = Callable[[int, int], int]  # (group id, user id) -> what the user holds of the group now; comparable
DEFAULT = Rules()


def bonus_of(priority: int, rules: Rules) -> timedelta:
    """Return by how much earlier a session of priority 0 would have had to join to stand in the same place."""
    return priority * rules.ageing


def sequence(queue: Iterable[Request], rules: Mapping[int, Rules], share: Share, now: datetime) -> Iterator[Request]:
    """Yield the requests as they are to be served: all that are first come first served, then each fair group's.

    `share` is asked again for every step of a fair group, so whoever has just been served stands back at once.
    """
    fair: dict[int, list[Request]] = {}
    bonus: dict[tuple[int, int], timedelta] = {}
    line: list[Request] = []
    for request in queue:
        group_id, priority = request.group_id, request.priority
        if (group_id, priority) not in bonus:
            bonus[group_id, priority] = bonus_of(priority, rules.get(group_id, DEFAULT))
        if group_id in rules and rules[group_id].order == Order.DRF:
            fair.setdefault(group_id, []).append(request)
        else:
            line.append(request)
    line.sort(key=lambda request: request.queued_at - bonus[request.group_id, request.priority])
    yield from line
    for group_id in sorted(fair):
        yield from fairly(fair[group_id], rules[group_id], share, now)


def fairly(requests: Iterable[Request], rules: Rules, share: Share, now: datetime) -> Iterator[Request]:
    """Yield the requests of one group: the highest band first, in it those of the user who holds least, oldest first.

    A band is a point of priority, waiting counted in; within it nobody is ahead by having waited a little longer.
    """
    lines: dict[int, list[tuple[int, datetime, int, Request]]] = {}
    for place, request in enumerate(requests):
        band = request.priority + (now - request.queued_at) // rules.ageing
        lines.setdefault(request.owner_id, []).append((-band, request.queued_at, place, request))
    turns = []
    for owner_id, line in lines.items():
        line.sort(reverse=True)
        band, since, place, request = line[-1]
        turns.append((band, share(request.group_id, owner_id), since, place, owner_id))
    heapify(turns)
    while turns:
        owner_id = turns[0][-1]
        line = lines[owner_id]
        request = line.pop()[-1]
        yield request
        if line:
            band, since, place, request = line[-1]
            heapreplace(turns, (band, share(request.group_id, owner_id), since, place, owner_id))
        else:
            heappop(turns)
