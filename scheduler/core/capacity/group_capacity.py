"""Search of a resource group for the host that takes a request, by the group's placement policy. Pure."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain, islice, takewhile
from typing import Final

from scheduler.core.capacity.host_capacity import HostCapacity, Rank
from scheduler.core.capacity.member_search import MemberSearch, Room
from scheduler.core.capacity.placement_policy import PlacementPolicy, split_of
from scheduler.core.types import HostIds, MemberAmounts, Shape, Shares

MAX_COMPARED: Final = 64  # hosts, so that a tie-break takes microseconds
_NO_SHAPE: Final = Shape(0, 0, 0)  # for policies that ignore the shape


class GroupCapacity:
    """Free capacity of the hosts of one group, and the search among them.

    Every change of a host is numbered. Searches keep what they know of a host together with the number of its last
    change (`version`), so that outdated knowledge is recognized without being removed.
    """

    def __init__(self, hosts: Sequence[HostCapacity], policy: PlacementPolicy) -> None:
        """Take the hosts, each at the position that its `index` says; their versions start at 0."""
        self.hosts = hosts
        self.connected = [host for host in hosts if host.closeness is not None]
        self.policy = policy
        self.change_count = 0
        self.release_count = 0  # changes that may have freed capacity
        largest = max((len(host.device_free) * host.gpu_capacity for host in hosts), default=0)
        self.changed: list[dict[int, HostCapacity]] = [{} for _ in range(_size_class(largest) + 1)]  # by index
        self.order: list[Rank] = []  # initial ranks, ascending, under policies that ignore the shape
        self.first_unchanged = 0  # position in `order` before which all hosts have changed
        self._searches: dict[tuple[Shape, HostIds], _HostSearch] = {}
        # And the last change that each has counted.
        self._member_searches: dict[tuple[Shape, bool, HostIds, MemberAmounts | None], tuple[MemberSearch, int]] = {}
        for host in hosts:
            host.version = 0
            host.changed_in = None
            host.useless = None
        if not policy.depends_on_shape:
            for host in hosts:
                host.rank = policy.rank(host, _NO_SHAPE)
            self.order = sorted(host.rank for host in hosts if not host.is_reserved)

    def find(self, shape: Shape, avoided_host_ids: HostIds = ()) -> HostCapacity | None:
        """Return the host of the lowest rank that fits; an avoided host only if no other fits; None if none does."""
        search = self._searches.get((shape, avoided_host_ids))
        if search is None:
            search = self._searches[shape, avoided_host_ids] = _HostSearch(self, shape, avoided_host_ids)
        host = search.best()
        return self.find(shape) if host is None and avoided_host_ids else host

    def find_members(self, shape: Shape, avoided_host_ids: HostIds = ()) -> list[tuple[HostCapacity, Shape]]:
        """Return the hosts for a cluster that may span hosts, each with the shape of what goes there; [] if none do.

        The members of lower rank go to the first hosts.
        """
        chosen = self.member_search(shape).choose(shape.members, shape.mode, avoided_host_ids)
        return [
            (self.hosts[index], shape.of_members(count, with_main=not place))
            for place, (count, index) in enumerate(chosen)
        ]

    def room_for(self, shape: Shape, reserved: Iterable[HostCapacity]) -> Room:
        """Return for how many members of a cluster there is room now, on these hosts too, which are reserved."""
        return self.member_search(shape).room(reserved)

    def has_room(self, shape: Shape, reserved: Iterable[HostCapacity]) -> bool:
        """Return whether all members of a cluster have room now, on these hosts too, which are reserved."""
        if not shape.spans_hosts:
            return any(host.fits(shape) for host in self.hosts)
        search = self.member_search(shape).copy()
        for host in reserved:
            shown = host.copy()
            shown.is_reserved = False
            search.update(shown)
        return bool(search.choose(shape.members, shape.mode))

    def member_search(self, shape: Shape) -> MemberSearch:
        """Return the search for members of this shape, brought up to date."""
        key = shape.of_members(1), shape.shares_gpus, shape.pins, shape.main
        search, seen = self._member_searches.get(key, (None, 0))
        if search is None:
            search = MemberSearch(shape, self._hosts_with(shape.least[2]))
        elif seen != self.change_count:
            for hosts in self.changed:
                for host in takewhile(lambda host: host.version > seen, reversed(hosts.values())):
                    search.update(host)
        self._member_searches[key] = search, self.change_count
        return search

    def _hosts_with(self, fgpu_milli: int) -> Iterable[HostCapacity]:
        """Return the hosts with so much free, and perhaps others: few where most are full."""
        if not self.policy.begins_with_free:
            return self.hosts
        ranked = (self.hosts[rank[-2]] for rank in self.order[bisect_left(self.order, (fgpu_milli,)) :])
        changed = (hosts.values() for hosts in self.changed[_size_class(fgpu_milli) :])
        return chain((host for host in ranked if not host.version), *changed)

    def equal_of(
        self, host: HostCapacity, shape: Shape, preferred: Collection[int], avoided_host_ids: HostIds = ()
    ) -> HostCapacity:
        """Return the host that equals `host` and suits `shape` best: close devices, then one at a position `preferred`.

        Equal hosts have the same amounts free and the same traits, so that it makes no difference to any other request
        which of them is taken. It is `host` itself, else the first, among those that suit as well; closeness counts for
        several whole devices. Looks at `MAX_COMPARED` of `preferred` at most, and at as many by closeness.
        """
        others = (self.hosts[index] for index in islice(preferred, MAX_COMPARED))
        has_parts = shape.members > 1 and shape.member_milli < host.gpu_capacity  # of devices, no whole ones
        if host.closeness is None or has_parts or shape.fgpu_milli < 2 * host.gpu_capacity:
            if not preferred or host.index in preferred:
                return host
            return next((it for it in others if it.equals(host) and it.host_id not in avoided_host_ids), host)
        best, rank = host, (host.closeness_for(shape.fgpu_milli), host.index in preferred)
        highest = host.closeness_for(shape.fgpu_milli, when_empty=True), bool(preferred)
        for other in chain(others, self.connected[:MAX_COMPARED]):
            if rank >= highest:
                break
            if other.closeness is not None and other.equals(host) and other.host_id not in avoided_host_ids:
                other_rank = other.closeness_for(shape.fgpu_milli), other.index in preferred
                best, rank = (other, other_rank) if other_rank > rank else (best, rank)
        return best

    def take(self, host: HostCapacity, shape: Shape, split: dict[int, int] | None = None) -> Shares:
        """Take `shape` from a host of this group on which it fits; return the shares. The policy chooses the devices.

        `split` overrides that choice: {device index: milli-fGPU}.
        """
        if split is None:
            split = split_of(self.policy, host, shape)
        shares = host.take(shape, split)
        self.note_change(host)
        return shares

    def give_back(self, host: HostCapacity, shape: Shape, shares: Shares) -> None:
        """Return to a host of this group what an ended session held."""
        host.give_back(shape, shares)
        self.note_change(host)
        self.release_count += 1

    def set_reserved(self, host: HostCapacity, is_reserved: bool) -> None:
        """Hide a host from `find`, or show it again."""
        host.is_reserved = is_reserved
        self.note_change(host)
        self.release_count += 1

    def skip_changed(self) -> int:
        """Return the first position in `order` whose host has not changed; packing consumes `order` from the front."""
        order, hosts, first = self.order, self.hosts, self.first_unchanged
        while first < len(order) and hosts[order[first][-2]].version:
            first += 1
        self.first_unchanged = first
        return first

    def note_change(self, host: HostCapacity) -> None:
        """Number a change of a host and put it last in the bucket of its size class; searches catch up from there."""
        self.change_count += 1
        host.version = self.change_count
        if not self.policy.depends_on_shape:
            host.rank = self.policy.rank(host, _NO_SHAPE)
        if host.changed_in is not None:
            del host.changed_in[host.index]
        changed = host.changed_in = self.changed[_size_class(host.max_request_milli)]
        changed[host.index] = host


def _size_class(fgpu_milli: int) -> int:
    """Return a number that grows by 1 for each factor of four."""
    return fgpu_milli.bit_length() >> 1


class _HostSearch:
    """Incremental search of the best host for one shape, asked repeatedly while hosts change.

    It walks the initial order once. Hosts that have changed since and fit are in a heap by their new rank. A rank whose
    version is not its host's is outdated: a later change has pushed its successor. A shape that fits nowhere is
    searched again only after a release.
    """

    __slots__ = ("_avoided", "_changed", "_full_at", "_group", "_order", "_position", "_seen", "_shape")

    def __init__(self, group: GroupCapacity, shape: Shape, avoided_host_ids: HostIds) -> None:
        self._group = group
        self._shape = shape
        self._avoided = avoided_host_ids
        self._changed: list[Rank] = []
        self._position = 0
        self._seen = 0  # number of the latest change taken into account
        self._full_at = -1  # `release_count` when no host fitted
        if group.policy.depends_on_shape:
            fitting = [host for host in group.hosts if host.fits(shape) and not host.is_reserved]
            self._order = sorted(
                group.policy.rank(host, shape) for host in fitting if host.host_id not in avoided_host_ids
            )
            self._seen = group.change_count
        else:
            self._order = group.order
            if group.policy.begins_with_free:
                self._position = bisect_left(group.order, (shape.fgpu_milli,))  # hosts with less in total cannot fit

    def best(self) -> HostCapacity | None:
        """Return the host of the lowest rank that fits, or None."""
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
        """Push the hosts that have changed since the last search and fit."""
        cpu, memory_bytes, fgpu_milli, traits, members = self._shape[:5]
        if members > 1:  # a device must have what one member needs; the others may fit on other devices
            fgpu_milli = self._shape.member_milli
        seen, avoided, policy, changed = self._seen, self._avoided, self._group.policy, self._changed
        for hosts in self._group.changed[_size_class(fgpu_milli) :]:  # smaller size classes cannot fit it
            for host in reversed(hosts.values()):
                if host.version <= seen:
                    break
                # HostCapacity.fits() inlined: the hot loop of a pass
                if host.max_request_milli < fgpu_milli or host.cpu < cpu or host.memory_bytes < memory_bytes:
                    continue
                if traits and not host.traits.issuperset(traits):
                    continue
                if host.is_reserved or fgpu_milli % host.granularity_milli or host.host_id in avoided:
                    continue
                if members > 1 and not host.fits(self._shape):
                    continue
                heappush(changed, policy.rank(host, self._shape) if policy.depends_on_shape else host.rank)
        self._seen = self._group.change_count

    def _first_unchanged(self) -> Rank | None:
        """Return the next rank of the initial order whose host has not changed and fits."""
        order, hosts, shape, avoided = self._order, self._group.hosts, self._shape, self._avoided
        skipped = self._group.skip_changed() if order is self._group.order else 0
        for position in range(max(self._position, skipped), len(order)):
            rank = order[position]
            host = hosts[rank[-2]]
            if host.version == rank[-1] and host.fits(shape) and host.host_id not in avoided:
                self._position = position
                return rank
        self._position = len(order)
        return None
