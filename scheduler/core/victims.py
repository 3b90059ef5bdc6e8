"""The sessions on one host that end for a request: the fewest, then those that have run for the shortest time. Pure.

A cluster ends as a whole: it counts as all its members, wherever they are, and gives what those on this host hold.

GPU is found by device: a whole device is free once all that hold a part of it have ended; for a part of another device,
and for cores and memory, those end that hold most. Branch and bound looks for fewer, or younger ones. Its steps are
bounded: beyond, as with dozens of sessions of many sizes, the best so far is taken.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate, chain, combinations
from math import comb, inf
from types import MappingProxyType
from typing import Final, NamedTuple

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.types import RunningSession, Shape

MAX_DEVICE_SETS: Final = 70  # of devices to free that are compared: four of eight
MAX_STEPS: Final = 1000  # of the search on one host
Amounts = tuple[int, int, int]  # cores, bytes, and milli-fGPU of one device
Offer = tuple[int, Amounts]  # position of a victim, and what its end gives
Clusters = Mapping[str, Mapping[str, RunningSession]]  # by id, their members by id
Sums = Sequence[Sequence[int]]  # for each amount, what the largest n give together, by n
MICROSECOND: Final = timedelta(microseconds=1)


class _Victim(NamedTuple):
    """A session, or the members of a cluster, which end together."""

    here: Sequence[RunningSession]  # on the host
    members: Sequence[RunningSession]  # wherever


class Goal(NamedTuple):
    """Victims that all have to end for whole devices, and what is lacking then, the last of it on a device."""

    forced: frozenset[int]
    lacks: Amounts
    device: int | None


def without(host: HostCapacity, victims: Iterable[RunningSession]) -> HostCapacity:
    """Return the host as it is once these sessions have ended."""
    later = host.copy()
    for victim in victims:
        if victim.host_id == host.host_id:
            later.give_back(victim.shape, victim.shares)
    return later


def fewest_victims(
    host: HostCapacity,
    sessions: Sequence[RunningSession],
    shape: Shape,
    at_most: int,
    clusters: Clusters = MappingProxyType({}),
) -> Sequence[RunningSession] | None:
    """Return the fewest of `sessions` without which `shape` fits on the host; None if it takes more than `at_most`.

    `sessions` are given the youngest first. Among as many, those are taken that have run for the shortest time in all.
    `clusters` has all that end with one of them, which are among the victims.
    """
    if not sessions or not without(host, sessions).fits(shape):
        return None
    victims = _victims(sessions, clusters)
    if shape.members > 1 and shape.member_milli and shape.member_milli % host.gpu_capacity:
        chosen = _fewest_for_members(host, victims, shape)
        found = [member for victim in chosen for member in victim.members]
        return found if len(found) <= at_most else None
    search = _Search(host, victims, at_most)
    for goal in sorted(search.goals(shape), key=lambda goal: (len(goal.forced), sorted(goal.forced))):
        search.reach(goal)
    return None if search.best is None else [one for at in sorted(search.best) for one in victims[at].members]


def _victims(sessions: Sequence[RunningSession], clusters: Clusters) -> Sequence[_Victim]:
    """Return who ends together, in the order of `sessions`."""
    if not clusters:
        return [_Victim((session,), (session,)) for session in sessions]
    together: dict[str, list[RunningSession]] = {}
    for session in sessions:
        together.setdefault(session.cluster_id or session.session_id, []).append(session)
    return [
        _Victim(here, [*clusters[whole].values()] if whole in clusters else here) for whole, here in together.items()
    ]


def _fewest_for_members(host: HostCapacity, victims: Sequence[_Victim], shape: Shape) -> Sequence[_Victim]:
    """Return victims for members with parts of GPUs: the first that are enough, less those not needed then."""
    later, chosen = host.copy(), list[_Victim]()
    while not later.fits(shape):
        chosen.append(victims[len(chosen)])
        _end(later, chosen[-1])
    for victim in reversed(chosen.copy()):
        _end(later, victim, -1)
        if later.fits(shape):
            chosen.remove(victim)
        else:
            _end(later, victim)
    return chosen


def _end(host: HostCapacity, victim: _Victim, sign: int = 1) -> None:
    """Give back what a victim holds on a host, or take it again."""
    for session in victim.here:
        host.give_back(session.shape, session.shares, sign)


class _Search:
    """The best set of victims so far; they are known by their positions."""

    def __init__(self, host: HostCapacity, victims: Sequence[_Victim], at_most: int) -> None:
        self._host = host
        youngest = max(it.started_at for victim in victims for it in victim.members)
        self._ages = [sum((youngest - it.started_at) // MICROSECOND for it in victim.members) for victim in victims]
        self._weights = [len(victim.members) for victim in victims]
        self._amounts = [
            (sum(it.shape.cpu for it in victim.here), sum(it.memory_bytes for it in victim.here)) for victim in victims
        ]
        devices = {gpu_id: device for device, gpu_id in enumerate(host.gpu_ids)}
        self._held: list[Counter[int]] = []
        for victim in victims:
            held = Counter[int]()
            for gpu_id, milli in chain.from_iterable(it.shares for it in victim.here):
                if gpu_id in devices:
                    held[devices[gpu_id]] += milli
            self._held.append(held)
        self._offers: dict[int | None, tuple[Sequence[Offer], Sums]] = {}  # by the device that is to give a part
        self._steps_left = MAX_STEPS
        self._count, self._age = at_most, inf  # fewer sessions are better, or as many of less age
        self.best: frozenset[int] | None = None

    def goals(self, shape: Shape) -> Iterator[Goal]:
        """Yield what would make room for `shape`: for each choice of devices one."""
        host = self._host
        whole, part = divmod(shape.fgpu_milli, host.gpu_capacity) if shape.fgpu_milli else (0, 0)
        balance = [free - owed for free, owed in zip(host.device_free, host.device_owed, strict=True)]
        free = {device for device, amount in enumerate(balance) if amount == host.gpu_capacity}
        holders = [frozenset(at for at, held in enumerate(self._held) if d in held) for d in range(len(balance))]
        able = [
            device
            for device, amount in enumerate(balance)
            if device not in free
            and amount + sum(self._held[at][device] for at in holders[device]) == host.gpu_capacity
        ]
        for emptied in _device_sets(able, holders, max(0, whole - len(free))):
            forced = frozenset[int]().union(*(holders[device] for device in emptied))
            cpu = shape.cpu - host.cpu - sum(self._amounts[at][0] for at in forced)
            lack = shape.memory_bytes - host.memory_bytes - sum(self._amounts[at][1] for at in forced)
            if not part or len(free) > whole:
                yield Goal(forced, (cpu, lack, 0), None)
                continue
            for device in range(len(balance)):
                if device not in free and device not in emptied:
                    given = balance[device] + sum(self._held[at][device] for at in forced)
                    yield Goal(forced, (cpu, lack, part - given), device)

    def reach(self, goal: Goal) -> None:
        """Look for a better set that reaches a goal: at first by what gives most."""
        all_offers, most = self._offers_on(goal.device)
        count, age = self._cost(goal.forced)
        if not self._may_be_better(count + _least(goal.lacks, most), age):
            return
        offers = [offer for offer in all_offers if offer[0] not in goal.forced and _use(offer[1], goal.lacks)]
        self._accept_largest(goal, offers)
        self._extend(goal.forced, count, age, goal.lacks, offers, most)

    def _offers_on(self, device: int | None) -> tuple[Sequence[Offer], Sums]:
        """Return what each gives, the youngest first, where this device is to give a part, and the most of so many."""
        known = self._offers.get(device)
        if known is None:
            milli = [0 if device is None else held[device] for held in self._held]
            amounts = [(*of_host, part) for of_host, part in zip(self._amounts, milli, strict=True)]
            sums = [[0, *accumulate(sorted(column, reverse=True))] for column in zip(*amounts, strict=True)]
            offers = sorted(enumerate(amounts), key=lambda offer: self._ages[offer[0]])
            known = self._offers[device] = offers, sums
        return known

    def _accept_largest(self, goal: Goal, offers: Sequence[Offer]) -> None:
        """Try the set that always adds the session which gives most of what lacks, less those not needed then."""
        chosen: dict[int, Amounts] = {}
        lacks = goal.lacks
        while any(lack > 0 for lack in lacks):
            left = [offer for offer in offers if offer[0] not in chosen]
            best = max(left, key=lambda offer: _use(offer[1], lacks), default=None)
            if best is None or not _use(best[1], lacks):
                return
            chosen[best[0]] = best[1]
            lacks = _less(lacks, best[1])
        for at in sorted(chosen, reverse=True):  # the oldest first
            lacks_then = _less(lacks, tuple(-amount for amount in chosen[at]))
            if all(lack <= 0 for lack in lacks_then):
                del chosen[at]
                lacks = lacks_then
        self._accept(goal.forced | chosen.keys())

    def _extend(
        self, chosen: frozenset[int], count: int, age: int, lacks: Amounts, offers: Sequence[Offer], most: Sums
    ) -> None:
        """Try all sets of the offers that may be better with what is chosen, as far as the steps last."""
        more = _least(lacks, most)
        if not more:
            self._accept(chosen)
            return
        for number, (at, amounts) in enumerate(offers):
            if not self._may_be_better(count + more, age + more * self._ages[at]) or not self._steps_left:
                break  # the following are older
            self._steps_left -= 1
            cost, left = (count + self._weights[at], age + self._ages[at]), _less(lacks, amounts)
            self._extend(chosen | {at}, *cost, left, offers[number + 1 :], most)

    def _may_be_better(self, count: int, age: int) -> bool:
        return (count, age) < (self._count, self._age)

    def _accept(self, chosen: frozenset[int]) -> None:
        count, age = self._cost(chosen)
        if self._may_be_better(count, age):
            self.best, self._count, self._age = chosen, count, age

    def _cost(self, chosen: frozenset[int]) -> tuple[int, int]:
        """Return how many sessions these are, and for how long they have run above the youngest of all."""
        return sum(self._weights[at] for at in chosen), sum(self._ages[at] for at in chosen)


def _device_sets(able: Sequence[int], holders: Sequence[frozenset[int]], count: int) -> Iterable[Iterable[int]]:
    """Return sets of so many devices to free: all, or where these are too many, one that begins with each device."""
    if comb(len(able), count) <= MAX_DEVICE_SETS:
        return combinations(able, count)
    return [_grown(first, able, holders, count) for first in able]


def _grown(first: int, able: Sequence[int], holders: Sequence[frozenset[int]], count: int) -> set[int]:
    """Return a set of devices, of which each next one has the fewest more that hold it."""
    chosen, forced = {first}, holders[first]
    while len(chosen) < count:
        freed = [device for device in able if device not in chosen]
        # One session may hold several: what it costs is divided by the devices that it leaves.
        cost = {d: (holders[d] - forced, sum(holders[e] <= holders[d] | forced for e in freed)) for d in freed}
        nearest = min(freed, key=lambda device: (len(cost[device][0]) / cost[device][1], device))
        chosen.add(nearest)
        forced |= holders[nearest]
    return chosen


def _least(lacks: Amounts, most: Sums) -> int:
    """Return how many sessions it takes at least."""
    return max(bisect_left(sums, lack) if lack > 0 else 0 for lack, sums in zip(lacks, most, strict=True))


def _use(amounts: Amounts, lacks: Amounts) -> float:
    """Return what part of what lacks is given, summed over the amounts."""
    return sum(min(given, lack) / lack for given, lack in zip(amounts, lacks, strict=True) if lack > 0)


def _less(lacks: Amounts, given: Sequence[int]) -> Amounts:
    cpu, memory_bytes, fgpu_milli = (lack - amount for lack, amount in zip(lacks, given, strict=True))
    return cpu, memory_bytes, fgpu_milli
