"""Search of a resource group for the hosts that take the members of a cluster which may span hosts. Pure.

Hosts are known by how many members they could take. A cluster goes to as few hosts as possible: first to those that
take most, and the rest of it to the one that takes just enough. Of as few, it goes to those that are nearest to each
other: whose paths in the topology have most in common, as with Slurm's topology/tree. All members get GPUs of the same
model.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from copy import copy as shallow_copy
from itertools import groupby
from typing import NamedTuple

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.types import ClusterMode, HostIds, Shape, Topology

Domain = tuple[int, Topology, str]  # hosts below a path in the topology, with GPUs of one model: its negated length
# Indexes of hosts, by how many others they take beside a first member with amounts of its own, and without it, and GPU
# model: it makes no difference which host of such a kind takes it.
Kinds = dict[tuple[int, int, str], list[int]]
MemberCounts = list[tuple[int, int]]  # (members, index of the host), ascending, where that is at least one


class Room(NamedTuple):
    """How many members the hosts of one GPU model could take, of the model that could take most."""

    together: int = 0
    hosts: int = 0  # that could take at least one
    on_one_host: int = 0
    are_models_apart: bool = False  # hosts with GPUs of other models could take some, too


class MemberSearch:
    """How many members of one shape the hosts could take, kept up to date."""

    def __init__(self, shape: Shape, hosts: Iterable[HostCapacity] = ()) -> None:
        """Take the shape of a cluster, whatever its size, and the hosts at first."""
        self._one = shape.of_members(1)
        self._main = shape.of_members(1, with_main=True) if shape.main else None
        self._shares_gpus = shape.shares_gpus
        self._pins = shape.pins
        self._known: dict[int, tuple[int, int]] = {}  # members, and those beside the first, by index of the host
        self._counts: dict[Domain, MemberCounts] = {}
        self._domains: list[Domain] = []  # ascending: the longest paths first
        self._kinds: dict[Topology, Kinds] = {}  # of hosts that can take a first member with amounts of its own
        self._host_ids: dict[int, int] = {}  # by index
        cpu, memory_bytes, fgpu_milli = shape.least
        for host in hosts:  # most of which are full: asked here, as a call for each would take most of a pass
            if host.cpu >= cpu and host.memory_bytes >= memory_bytes and host.max_request_milli >= fgpu_milli:
                self.update(host)

    def update(self, host: HostCapacity) -> None:
        """Count what a host could take now; none where it is reserved."""
        count = 0 if host.is_reserved else self._count_on(host)
        beside = -1 if host.is_reserved else self._count_beside(host)
        known = self._known.get(host.index, (0, -1))
        if known == (count, beside):
            return
        self._known[host.index] = count, beside
        self._host_ids[host.index] = host.host_id
        path, model = host.topology, self.model_of(host)
        for length in range(len(path) + 1):
            domain = -length, path[:length], model
            counts = self._counts.get(domain)
            if counts is None:
                counts = self._counts[domain] = []
                insort(self._domains, domain)
            if known[0]:
                del counts[bisect_left(counts, (known[0], host.index))]
            if count:
                insort(counts, (count, host.index))
            if self._main is not None:
                _move(self._kinds.setdefault(path[:length], {}), model, host.index, known, (count, beside))

    def _count_on(self, host: HostCapacity) -> int:
        count = host.member_count(self._one, shares_gpus=self._shares_gpus)
        return min(count, self._pins.count(host.host_id)) if self._pins else count

    def _count_beside(self, host: HostCapacity) -> int:
        """Return how many it takes beside a first member with amounts of its own; -1 where not that one."""
        if self._main is None or (self._pins and self._pins[0] != host.host_id):
            return -1
        beside = host.members_beside(self._main, self._one, shares_gpus=self._shares_gpus)
        return min(beside, self._pins.count(host.host_id) - 1) if self._pins else beside

    def room(self, reserved: Iterable[HostCapacity]) -> Room:
        """Return for how many members of any cluster there is room, counting also these hosts, which are reserved."""
        models = {model for _, _, model in self._domains}
        counts = {model: [count for count, _ in self.counts_on(model)] for model in models}
        for host in reserved:
            if count := self._count_on(host):
                counts.setdefault(self.model_of(host), []).append(count)
        able = [found for found in counts.values() if found]
        if not able:
            return Room()
        return Room(max(map(sum, able)), max(map(len, able)), max(map(max, able)), len(able) > 1)

    def choose(self, members: int, mode: ClusterMode, avoided_host_ids: HostIds = ()) -> MemberCounts:
        """Return how many members go to which hosts, by index, the most first; none where not all find room.

        A first member with amounts of its own is among those of the first host. Avoided hosts are taken only if there
        is no other way.
        """
        best: MemberCounts = []
        for domain in self._domains:
            if not domain[0]:
                chosen = self._choose_in(domain, members, mode, avoided_host_ids)
                if chosen and (not best or len(chosen) < len(best)):
                    best = chosen
        if not best and avoided_host_ids:
            return self.choose(members, mode)
        return self._nearest(best, members, mode, avoided_host_ids) if len(best) > 1 else best

    def _nearest(self, best: MemberCounts, members: int, mode: ClusterMode, avoided_host_ids: HostIds) -> MemberCounts:
        """Return as few hosts as in `best`, with the longest path in common; of equals, where least room is."""
        least = len(best) - (self._main is not None)  # whose host may have no room for others
        for length, domains in groupby(self._domains, key=lambda domain: domain[0]):
            if not length:
                break
            found = [
                (sum(count for count, _ in self._counts[domain]), domain, chosen)
                for domain in domains
                if len(self._counts[domain]) >= least
                and len(chosen := self._choose_in(domain, members, mode, avoided_host_ids)) == len(best)
            ]
            if found:
                return min(found)[-1]
        return best

    def _choose_in(self, domain: Domain, members: int, mode: ClusterMode, avoided_host_ids: HostIds) -> MemberCounts:
        """Return how many members go to which hosts of a domain; none where not all find room."""
        able = self._counts[domain]
        if avoided_host_ids:
            able = [one for one in able if self._host_ids[one[1]] not in avoided_host_ids]
        if self._main is not None:
            return self._with_main(domain, able, members - 1, mode, avoided_host_ids)
        return _each(able, members) if mode == "spread" else _fewest(able, members)

    def _with_main(
        self, domain: Domain, able: MemberCounts, others: int, mode: ClusterMode, avoided_host_ids: HostIds
    ) -> MemberCounts:
        """Return the fewest hosts for a first member with amounts of its own, on the first of them, and the others."""
        best: MemberCounts = []
        for beside, count, index in self.kinds(domain, avoided_host_ids):
            here = min(beside, others) if mode != "spread" else 0
            rest, at = able, bisect_left(able, (count, index))
            if able[at : at + 1] == [(count, index)]:
                rest = able[:at] + able[at + 1 :]
            more = _each(rest, others) if mode == "spread" else _fewest(rest, others - here)
            if (more or here == others) and (not best or len(more) < len(best) - 1):
                best = [(1 + here, index), *more]
        return best

    def kinds(self, domain: Domain, avoided_host_ids: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield a host of each kind that can take a first member with amounts of its own, beside others of a domain.

        With how many others it takes beside it, and without it; without GPU, the first may be where those have none.
        """
        _, path, model = domain
        for (beside, count, its_model), alike in sorted(self._kinds.get(path, {}).items()):
            index = next((each for each in alike if self._host_ids[each] not in avoided_host_ids), None)
            if index is not None and its_model == model:
                yield beside, count, index
            elif index is not None and self._main is not None and not self._main.fgpu_milli:
                yield 0, count, index

    def copy(self) -> "MemberSearch":
        """Return an independent copy."""
        copy = shallow_copy(self)
        copy._known, copy._host_ids = self._known.copy(), self._host_ids.copy()
        copy._counts = {domain: counts.copy() for domain, counts in self._counts.items()}
        copy._domains = self._domains.copy()
        copy._kinds = {
            path: {kind: alike.copy() for kind, alike in kinds.items()} for path, kinds in self._kinds.items()
        }
        return copy

    def counts_on(self, model: str) -> MemberCounts:
        """Return how many members the hosts of a GPU model could take, by index."""
        return self._counts.get((0, (), model), [])

    def beside_main(self, host: HostCapacity) -> int:
        """Return how many others a host takes beside a first member with amounts of its own; -1 where not that one."""
        return self._known.get(host.index, (0, -1))[1]

    def model_of(self, host: HostCapacity) -> str:
        """Return the GPU model by which hosts are told apart."""
        return host.gpu_model if self._one.fgpu_milli else ""


def _move(kinds: Kinds, model: str, index: int, known: tuple[int, int], now: tuple[int, int]) -> None:
    """Put a host into the kind that it is of now; `known` and `now` are its members, and those beside the first."""
    if known[1] >= 0:
        alike = kinds[known[1], known[0], model]
        del alike[bisect_left(alike, index)]
        if not alike:
            del kinds[known[1], known[0], model]
    if now[1] >= 0:
        insort(kinds.setdefault((now[1], now[0], model), []), index)


def _each(counts: MemberCounts, members: int) -> MemberCounts:
    """Return as many hosts as members, those first that take the fewest; none if there are not so many."""
    return [(1, index) for _, index in counts[:members]] if len(counts) >= members else []


def _fewest(counts: MemberCounts, members: int) -> MemberCounts:
    """Return the fewest hosts that take all members; none if they take fewer."""
    if not members:
        return []
    chosen: MemberCounts = []
    left, end = members, len(counts)
    while True:
        at = bisect_left(counts, (left,), hi=end)
        if at < end:
            return [*chosen, (left, counts[at][1])]
        if not end:
            return []
        end -= 1
        chosen.append(counts[end])
        left -= counts[end][0]
