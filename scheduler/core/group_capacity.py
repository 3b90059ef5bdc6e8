"""Search of a resource group for the host that takes a request, by the group's placement policy. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush

from scheduler.core.host_capacity import HostCapacity, Rank
from scheduler.core.placement_policy import PackPolicy, PlacementPolicy
from scheduler.core.types import Shape, Shares


class GroupCapacity:
    """What the hosts of one group have left, and which of them takes a shape."""

    def __init__(self, hosts: Sequence[HostCapacity], policy: PlacementPolicy) -> None:
        """Take the hosts' rooms, each at the position that its `index` says."""
        self.hosts = hosts
        self.policy = policy
        self.change_count = 0
        largest = max((len(host.device_free) * host.gpu_capacity for host in hosts), default=0)
        self.changed: list[dict[int, HostCapacity]] = [
            {} for _ in range(_size_class(largest) + 1)
        ]  # by size class and index
        self.order: list[Rank] = []  # of a policy for which the shape does not matter, as at the first search
        self.first = 0  # place in `order` before which all rooms have changed
        self.packs = isinstance(policy, PackPolicy)
        self.release_count = 0  # how often a room has got more
        self._searches: dict[tuple[Shape, int | None], _HostSearch] = {}
        for host in hosts:
            host.version = 0
            host.changed_in = None
        if not policy.by_shape:
            for host in hosts:
                host.rank = policy.rank(host, _NOTHING)
            self.order = sorted(host.rank for host in hosts if not host.is_reserved)

    def find(self, shape: Shape, avoided_host_id: int | None = None) -> HostCapacity | None:
        """Return the room that fits and ranks lowest; that of the avoided host only if no other fits."""
        search = self._searches.get((shape, avoided_host_id))
        if search is None:
            search = self._searches[shape, avoided_host_id] = _HostSearch(self, shape, avoided_host_id)
        host = search.best()
        return self.find(shape) if host is None and avoided_host_id is not None else host

    def take(self, host: HostCapacity, shape: Shape, split: dict[int, int] | None = None) -> Shares:
        """Take `shape` from a room of this group, which must fit, and return the shares; the policy splits it."""
        if split is None:
            rest = shape.fgpu % host.gpu_capacity if shape.fgpu else 0
            split = host.split(shape.fgpu, (self.policy.device(host, shape, rest),) if rest else ())
        shares = host.take(shape, split)
        self.note_change(host)
        return shares

    def give(self, host: HostCapacity, shape: Shape, shares: Shares) -> None:
        """Take back what an ended session held of a room of this group."""
        host.give(shape, shares)
        self.note_change(host)
        self.release_count += 1

    def set_reserved(self, host: HostCapacity, is_reserved: bool) -> None:
        """Hide a room from `find`, or show it again."""
        host.is_reserved = is_reserved
        self.note_change(host)
        self.release_count += 1

    def skip_changed(self) -> int:
        """Return the first place in `order` whose room is as it was: policies that fill up eat from the front."""
        order, hosts, first = self.order, self.hosts, self.first
        while first < len(order) and hosts[order[first][-2]].version:
            first += 1
        self.first = first
        return first

    def note_change(self, host: HostCapacity) -> None:
        """Note that a room has changed, as the latest of those of its size: what searches knew of it is out of date."""
        self.change_count += 1
        host.version = self.change_count
        if not self.policy.by_shape:
            host.rank = self.policy.rank(host, _NOTHING)
        if host.changed_in is not None:
            del host.changed_in[host.index]
        changed = host.changed_in = self.changed[_size_class(host.fgpu)]
        changed[host.index] = host


_NOTHING = Shape(0, 0, 0)


def _size_class(fgpu: int) -> int:
    """Return a number that grows with `fgpu`: by 1 for what is four times as large."""
    return fgpu.bit_length() >> 1


class _HostSearch:
    """The best room for one shape, asked for again and again while rooms change.

    It walks the order as it was at its beginning once; rooms that changed since and fit are in a heap by their new
    rank. A rank whose stamp is not its room's is out of date: its successor is a later change. What fitted nowhere is
    looked for again only when a room has got more.
    """

    __slots__ = ("_avoided", "_changed", "_full_at", "_group", "_order", "_position", "_seen", "_shape")

    def __init__(self, group: GroupCapacity, shape: Shape, avoided_host_id: int | None) -> None:
        self._group = group
        self._shape = shape
        self._avoided = avoided_host_id
        self._changed: list[Rank] = []
        self._position = 0
        self._seen = 0
        self._full_at = -1  # how many gains there had been when it fitted nowhere
        if group.policy.by_shape:
            fitting = [r for r in group.hosts if r.fits(shape) and not r.is_reserved and r.host_id != avoided_host_id]
            self._order = sorted(group.policy.rank(host, shape) for host in fitting)
            self._seen = group.change_count
        else:
            self._order = group.order
            if group.packs:
                self._position = bisect_left(group.order, (shape.fgpu,))  # less free in all cannot fit

    def best(self) -> HostCapacity | None:
        """Return the room of the lowest rank that fits, or None."""
        group = self._group
        if self._full_at == group.release_count:
            return None
        if self._seen != group.change_count:
            self._catch_up()
        changed, order, hosts = self._changed, self._order, group.hosts
        while changed and hosts[changed[0][-2]].version != changed[0][-1]:
            heappop(changed)
        if self._position < len(order) and not (changed and changed[0] < order[self._position]):
            unchanged = self._first_unchanged()
            if unchanged is not None and not (changed and changed[0] < unchanged):
                return hosts[unchanged[-2]]
        if changed:
            return hosts[changed[0][-2]]
        self._full_at = group.release_count
        return None

    def _catch_up(self) -> None:
        """Take note of the rooms that changed since the last search."""
        cpu, memory, fgpu = self._shape  # Room.fits() written out: most of a pass is spent in this loop
        seen, avoided, policy, changed = self._seen, self._avoided, self._group.policy, self._changed
        for hosts in self._group.changed[_size_class(fgpu) :]:  # in those before is not enough for it
            for host in reversed(hosts.values()):
                if host.version <= seen:
                    break
                if host.fgpu < fgpu or host.cpu < cpu or host.memory < memory or host.is_reserved:
                    continue
                if fgpu % host.granularity or host.host_id == avoided:
                    continue
                heappush(changed, policy.rank(host, self._shape) if policy.by_shape else host.rank)
        self._seen = self._group.change_count

    def _first_unchanged(self) -> Rank | None:
        order, hosts, shape, avoided = self._order, self._group.hosts, self._shape, self._avoided
        skipped = self._group.skip_changed() if order is self._group.order else 0
        for position in range(max(self._position, skipped), len(order)):
            rank = order[position]
            host = hosts[rank[-2]]
            if host.version == rank[-1] and host.fits(shape) and host.host_id != avoided:
                self._position = position
                return rank
        self._position = len(order)
        return None
