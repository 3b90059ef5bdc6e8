"""Queue order: first come first served with priorities that age, or fair share. Pure.

In a FIFO group a point of priority counts as much as waiting for `Rules.ageing`: a session of priority p that joined at
t ranks as one of priority 0 that joined p * `ageing` earlier. That moment never changes, so waiting never worsens a
position, and a request that comes much later ranks behind, whatever its priority. That order says who is the head.
Behind it, where all that starts must not delay it, the turn is that of the highest priority, then of the shortest
predicted run time (EASY-SJBF, Tsafrir, Etsion and Feitelson 2007).

Preemptible requests are served after all others of their group: one that started before would be ended for them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace
from operator import attrgetter

from scheduler.core.queue.fair_share import STARVING, DueParts, FairShares, Key
from scheduler.core.types import Association, BackfillRank, QueueOrder, Rules, SessionRequest, association_of

Waiting = tuple[int, datetime, int, SessionRequest]  # negated priority, since when, position
Entry = tuple[Key, datetime, int, Association]  # rank, since when, position
FairSharesOf = Callable[[int], FairShares | None]  # by group id; None for groups without hosts
DEFAULT = Rules()
_RANKED_BY = attrgetter("is_preemptible", "priority", "predicted", "duration")  # quicker than ranks themselves


def bonus_of(priority: int, rules: Rules) -> timedelta:
    """Return how much earlier a session of priority 0 would have had to join for the same rank."""
    return priority * rules.ageing


def queues_of(
    entries: Iterable[SessionRequest], rules: Mapping[int, Rules]
) -> tuple[list[SessionRequest], dict[int, list[SessionRequest]]]:
    """Return the entries of all FIFO groups, in order, and those of each fair group."""
    fair: dict[int, list[SessionRequest]] = {}
    bonus: dict[tuple[int, int], timedelta] = {}
    fifo: list[SessionRequest] = []
    for request in entries:
        group_id, priority = request.group_id, request.priority
        if (group_id, priority) not in bonus:
            bonus[group_id, priority] = bonus_of(priority, rules.get(group_id, DEFAULT))
        if group_id in rules and rules[group_id].queue_order == QueueOrder.FAIR:
            fair.setdefault(group_id, []).append(request)
        else:
            fifo.append(request)
    fifo.sort(
        key=lambda request: (request.is_preemptible, request.queued_at - bonus[request.group_id, request.priority])
    )
    return fifo, fair


def sequence(
    fifo: Iterable[SessionRequest],
    fair: Mapping[int, Iterable[SessionRequest]],
    shares_of: FairSharesOf,
    is_behind_head: Callable[[SessionRequest], bool],
    now: datetime,
) -> Iterator[SessionRequest]:
    """Yield the entries of `queues_of` as they are served: those behind the head of their FIFO group by rank.

    Heads and shares are asked for at each step: what a step has changed counts at once.
    """
    behind: dict[BackfillRank, list[SessionRequest]] = {}
    alike: dict[tuple[object, ...], list[SessionRequest]] = {}  # the same lists by what ranks are made of
    for request in fifo:
        if not is_behind_head(request):
            yield request
        elif (kind := _RANKED_BY(request)) in alike:
            alike[kind].append(request)
        else:
            alike[kind] = behind.setdefault(request.backfill_rank, [])
            alike[kind].append(request)
    for rank in sorted(behind):
        yield from behind[rank]
    for group_id in sorted(fair):
        shares = shares_of(group_id)
        yield from fair[group_id] if shares is None else fair_sequence(fair[group_id], shares, now)


def fair_sequence(requests: Iterable[SessionRequest], shares: FairShares, now: datetime) -> Iterator[SessionRequest]:
    """Yield the requests of one group by fair share, as in Slurm's Fair Tree: first whose turn it is among the projects
    and the users without one, then whose among the members of the project.

    The sessions of a user, for a project or without one, are ordered by priority, then by time. So are those that are
    preemptible, after all others.
    """
    parts: tuple[dict[Association, list[Waiting]], ...] = ({}, {})
    for position, request in enumerate(requests):
        queue = parts[request.is_preemptible].setdefault(association_of(request), [])
        queue.append((-request.priority, request.queued_at, position, request))
    assured = shares.assured(shares.due({*parts[0], *parts[1]}))
    for queues in parts:
        for queue in queues.values():
            queue.sort(reverse=True)
        tree = _FairTree(queues, shares, now, assured)
        while tree:
            yield tree.pop()
            tree.update()


class _FairTree:
    """Associations with waiting requests: a heap of branches, and for each branch a heap of its members.

    A start changes the ranks of its own member and branch alone; only of members that count as starving, which may
    have started something under another branch, the rank is computed again before they are served.
    """

    def __init__(
        self, queues: dict[Association, list[Waiting]], shares: FairShares, now: datetime, assured: DueParts
    ) -> None:
        self._queues, self._shares, self._now, self._assured = queues, shares, now, assured
        self._members: dict[Association, list[Entry]] = {}
        for member in queues:
            self._members.setdefault(member.branch, []).append(self._entry(member, member))
        for members in self._members.values():
            heapify(members)
        self._branches = [self._branch_entry(branch) for branch in self._members]
        heapify(self._branches)

    def __bool__(self) -> bool:
        return bool(self._branches)

    def pop(self) -> SessionRequest:
        """Remove and return the next request; call `update` once it has started, or has not."""
        while self._branches[0][0][0] == STARVING:
            entry = self._branch_entry(self._branches[0][-1])
            if entry == self._branches[0]:
                break
            heapreplace(self._branches, entry)
        return self._queues[self._members[self._branches[0][-1]][0][-1]].pop()[-1]

    def update(self) -> None:
        """Rank the member and the branch of the last request anew."""
        branch = self._branches[0][-1]
        members = self._members[branch]
        member = members[0][-1]
        if self._queues[member]:
            heapreplace(members, self._entry(member, member))
        else:
            heappop(members)
        if members:
            heapreplace(self._branches, self._branch_entry(branch))
        else:
            heappop(self._branches)

    def _branch_entry(self, branch: Association) -> Entry:
        """Return the entry of a branch: that of its first member, by the use of the branch."""
        members = self._members[branch]
        while members[0][0][0] == STARVING and (entry := self._entry(members[0][-1], members[0][-1])) != members[0]:
            heapreplace(members, entry)
        first = members[0]
        return first if first[-1] == branch else self._entry(branch, first[-1])

    def _entry(self, holder: Association, member: Association) -> Entry:
        """Return the rank of a branch or member by the next request of `member`."""
        _, since, position, request = self._queues[member][-1]
        return self._shares.key(holder, request, self._now, self._assured), since, position, holder
