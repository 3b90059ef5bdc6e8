"""Search of a resource group for the hosts that take the members of a cluster which may span hosts. Pure.

Hosts are known by how many members they could take. A cluster goes to as few hosts as possible: first to those that
take most, and the rest of it to the one that takes just enough. All members get GPUs of the same model.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.types import ClusterMode, HostIds, Shape

MemberCounts = list[tuple[int, int]]  # (members, index of the host), ascending, where that is at least one


class MemberSearch:
    """How many members of one shape the hosts could take, kept up to date."""

    def __init__(self, shape: Shape, hosts: Iterable[HostCapacity] = ()) -> None:
        """Take the shape of a cluster, whatever its size, and the hosts at first."""
        self._one = shape.of_members(1)
        self._shares_gpus = shape.shares_gpus
        self._known: dict[int, int] = {}  # members, by index of the host
        self._counts: dict[str, MemberCounts] = {}  # by GPU model
        self._host_ids: dict[int, int] = {}  # by index
        for host in hosts:
            self.update(host)

    def update(self, host: HostCapacity) -> None:
        """Count what a host could take now; none where it is reserved."""
        count = 0 if host.is_reserved else host.member_count(self._one, shares_gpus=self._shares_gpus)
        known = self._known.get(host.index, 0)
        if known == count:
            return
        self._known[host.index] = count
        self._host_ids[host.index] = host.host_id
        counts = self._counts.setdefault(host.gpu_model if self._one.fgpu_milli else "", [])
        if known:
            del counts[bisect_left(counts, (known, host.index))]
        if count:
            insort(counts, (count, host.index))

    def choose(self, members: int, mode: ClusterMode, avoided_host_ids: HostIds = ()) -> MemberCounts:
        """Return how many members go to which hosts, by index, the most first; none where not all find room.

        Avoided hosts are taken only if there is no other way.
        """
        found: list[MemberCounts] = []
        for _, counts in sorted(self._counts.items()):
            able = (
                [one for one in counts if self._host_ids[one[1]] not in avoided_host_ids]
                if avoided_host_ids
                else counts
            )
            chosen = _each(able, members) if mode == "spread" else _fewest(able, members)
            if chosen:
                found.append(chosen)
        if not found and avoided_host_ids:
            return self.choose(members, mode)
        return min(found, key=len, default=[])


def _each(counts: MemberCounts, members: int) -> MemberCounts:
    """Return as many hosts as members, those first that take the fewest; none if there are not so many."""
    return [(1, index) for _, index in counts[:members]] if len(counts) >= members else []


def _fewest(counts: MemberCounts, members: int) -> MemberCounts:
    """Return the fewest hosts that take all members; none if they take fewer."""
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
