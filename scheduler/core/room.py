"""What hosts have left while sessions are placed and end, and the search for the host that takes a shape. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush

from scheduler.core.terms import GpuView, Shape, Shares
from scheduler.core.where import Pack, Policy, Rank


class Room:
    """What one host has left.

    `fgpu` is the largest GPU request that fits its devices now: its whole free devices, and the largest part that is
    free on another. As a request takes whole devices and one rest, it fits exactly if it is not above that. A host that
    does not divide its devices takes multiples of `grain` only: of a whole one. `levels` is what devices have free,
    ascending.
    """

    __slots__ = (
        "capacity",
        "changed_in",
        "cpu",
        "fgpu",
        "free",
        "frees",
        "gpu_ids",
        "grain",
        "host_id",
        "index",
        "is_closed",
        "levels",
        "memory",
        "rank",
        "stamp",
    )

    def __init__(
        self, *, host_id: int, index: int, cpu: int, memory: int, gpus: Sequence[GpuView], divides: bool = True
    ) -> None:
        """Take what is free on the host and its devices; `index` is its place among the hosts of its group."""
        self.host_id = host_id
        self.index = index
        self.cpu = cpu
        self.memory = memory
        self.capacity = gpus[0].capacity if gpus else 0
        self.grain = 1 if divides else self.capacity or 1
        self.gpu_ids = [gpu.id for gpu in gpus]
        self.frees = [gpu.free if gpu.free > 0 else 0 for gpu in gpus]
        self.is_closed = False
        self.stamp = 0  # the number of the last change in its group
        self.changed_in: dict[int, Room] | None = None  # of its group, by index: rooms of its size that changed
        self.rank: Rank = ()  # of the policies for which the shape does not matter
        self.measure()

    def measure(self) -> None:
        """Derive `free`, `levels` and `fgpu` from the devices."""
        frees, capacity = self.frees, self.capacity
        self.free = sum(frees)
        self.levels = levels = sorted(frees)
        self.fgpu = frees.count(capacity) * capacity
        parts = bisect_left(levels, capacity)
        if parts and self.grain == 1:
            self.fgpu += levels[parts - 1]

    def fits(self, shape: Shape) -> bool:
        """Say whether the host can take `shape` now."""
        return (
            self.fgpu >= shape.fgpu
            and self.cpu >= shape.cpu
            and self.memory >= shape.memory
            and not shape.fgpu % self.grain
        )

    def split(self, fgpu: int, rest_on: Sequence[int]) -> dict[int, int]:
        """Return {device: share}: whole devices, and the rest on the first of `rest_on`. It must fit."""
        if not fgpu:
            return {}
        whole, rest = divmod(fgpu, self.capacity)
        if not whole:
            return {rest_on[0]: rest}
        if fgpu == self.capacity:
            return {self.frees.index(fgpu): fgpu}
        split = {rest_on[0]: rest} if rest else {}
        empty = [d for d, free in enumerate(self.frees) if free == self.capacity and d not in split]
        split.update(dict.fromkeys(empty[:whole], self.capacity))
        return split

    def take(self, shape: Shape, split: dict[int, int]) -> Shares:
        """Take `shape` as `split` over the devices; return (gpu id, milli-fGPU) in device order."""
        self.cpu -= shape.cpu
        self.memory -= shape.memory
        if not split:
            return ()
        for device, share in split.items():
            self.frees[device] -= share
        self.measure()
        if len(split) == 1:  # the usual case, by far
            ((device, share),) = split.items()
            return ((self.gpu_ids[device], share),)
        return tuple((self.gpu_ids[device], split[device]) for device in sorted(split))

    def give(self, shape: Shape, shares: Shares, sign: int = 1) -> None:
        """Take back what an ended session held, or (-1) give it away; shares of devices that are gone are dropped."""
        self.cpu += sign * shape.cpu
        self.memory += sign * shape.memory
        for gpu_id, share in shares:
            if gpu_id in self.gpu_ids:
                self.frees[self.gpu_ids.index(gpu_id)] += sign * share
        self.measure()

    def copy(self) -> "Room":
        """Return a room that changes by itself."""
        twin: Room = object.__new__(Room)  # written out: an estimate copies all rooms
        twin.host_id, twin.index = self.host_id, self.index
        twin.capacity, twin.grain, twin.gpu_ids = self.capacity, self.grain, self.gpu_ids
        twin.cpu, twin.memory, twin.fgpu, twin.free = self.cpu, self.memory, self.fgpu, self.free
        twin.frees, twin.levels = self.frees.copy(), self.levels
        twin.is_closed, twin.stamp, twin.changed_in, twin.rank = self.is_closed, 0, None, ()
        return twin


class GroupRoom:
    """What the hosts of one group have left, and which of them takes a shape."""

    def __init__(self, rooms: Sequence[Room], policy: Policy) -> None:
        """Take the hosts' rooms, each at the position that its `index` says."""
        self.rooms = rooms
        self.policy = policy
        self.changes = 0
        largest = max((len(room.frees) * room.capacity for room in rooms), default=0)
        self.changed: list[dict[int, Room]] = [{} for _ in range(_size_class(largest) + 1)]  # by size class and index
        self.order: list[Rank] = []  # of a policy for which the shape does not matter, as at the first search
        self.first = 0  # place in `order` before which all rooms have changed
        self.packs = isinstance(policy, Pack)
        self.gains = 0  # how often a room has got more
        self._searches: dict[tuple[Shape, int | None], _Search] = {}
        for room in rooms:
            room.stamp = 0
            room.changed_in = None
        if not policy.by_shape:
            for room in rooms:
                room.rank = policy.rank(room, _NOTHING)
            self.order = sorted(room.rank for room in rooms if not room.is_closed)

    def find(self, shape: Shape, avoided_host_id: int | None = None) -> Room | None:
        """Return the room that fits and ranks lowest; that of the avoided host only if no other fits."""
        search = self._searches.get((shape, avoided_host_id))
        if search is None:
            search = self._searches[shape, avoided_host_id] = _Search(self, shape, avoided_host_id)
        room = search.best()
        return self.find(shape) if room is None and avoided_host_id is not None else room

    def take(self, room: Room, shape: Shape, split: dict[int, int] | None = None) -> Shares:
        """Take `shape` from a room of this group, which must fit, and return the shares; the policy splits it."""
        if split is None:
            rest = shape.fgpu % room.capacity if shape.fgpu else 0
            split = room.split(shape.fgpu, (self.policy.device(room, shape, rest),) if rest else ())
        shares = room.take(shape, split)
        self.touch(room)
        return shares

    def give(self, room: Room, shape: Shape, shares: Shares) -> None:
        """Take back what an ended session held of a room of this group."""
        room.give(shape, shares)
        self.touch(room)
        self.gains += 1

    def set_closed(self, room: Room, is_closed: bool) -> None:
        """Hide a room from `find`, or show it again."""
        room.is_closed = is_closed
        self.touch(room)
        self.gains += 1

    def skip_changed(self) -> int:
        """Return the first place in `order` whose room is as it was: policies that fill up eat from the front."""
        order, rooms, first = self.order, self.rooms, self.first
        while first < len(order) and rooms[order[first][-2]].stamp:
            first += 1
        self.first = first
        return first

    def touch(self, room: Room) -> None:
        """Note that a room has changed, as the latest of those of its size: what searches knew of it is out of date."""
        self.changes += 1
        room.stamp = self.changes
        if not self.policy.by_shape:
            room.rank = self.policy.rank(room, _NOTHING)
        if room.changed_in is not None:
            del room.changed_in[room.index]
        changed = room.changed_in = self.changed[_size_class(room.fgpu)]
        changed[room.index] = room


_NOTHING = Shape(0, 0, 0)


def _size_class(fgpu: int) -> int:
    """Return a number that grows with `fgpu`: by 1 for what is four times as large."""
    return fgpu.bit_length() >> 1


class _Search:
    """The best room for one shape, asked for again and again while rooms change.

    It walks the order as it was at its beginning once; rooms that changed since and fit are in a heap by their new
    rank. A rank whose stamp is not its room's is out of date: its successor is a later change. What fitted nowhere is
    looked for again only when a room has got more.
    """

    __slots__ = ("_avoided", "_changed", "_full_at", "_group", "_order", "_position", "_seen", "_shape")

    def __init__(self, group: GroupRoom, shape: Shape, avoided_host_id: int | None) -> None:
        self._group = group
        self._shape = shape
        self._avoided = avoided_host_id
        self._changed: list[Rank] = []
        self._position = 0
        self._seen = 0
        self._full_at = -1  # how many gains there had been when it fitted nowhere
        if group.policy.by_shape:
            fitting = [r for r in group.rooms if r.fits(shape) and not r.is_closed and r.host_id != avoided_host_id]
            self._order = sorted(group.policy.rank(room, shape) for room in fitting)
            self._seen = group.changes
        else:
            self._order = group.order
            if group.packs:
                self._position = bisect_left(group.order, (shape.fgpu,))  # less free in all cannot fit

    def best(self) -> Room | None:
        """Return the room of the lowest rank that fits, or None."""
        group = self._group
        if self._full_at == group.gains:
            return None
        if self._seen != group.changes:
            self._catch_up()
        changed, order, rooms = self._changed, self._order, group.rooms
        while changed and rooms[changed[0][-2]].stamp != changed[0][-1]:
            heappop(changed)
        if self._position < len(order) and not (changed and changed[0] < order[self._position]):
            unchanged = self._first_unchanged()
            if unchanged is not None and not (changed and changed[0] < unchanged):
                return rooms[unchanged[-2]]
        if changed:
            return rooms[changed[0][-2]]
        self._full_at = group.gains
        return None

    def _catch_up(self) -> None:
        """Take note of the rooms that changed since the last search."""
        cpu, memory, fgpu = self._shape  # Room.fits() written out: most of a pass is spent in this loop
        seen, avoided, policy, changed = self._seen, self._avoided, self._group.policy, self._changed
        for rooms in self._group.changed[_size_class(fgpu) :]:  # in those before is not enough for it
            for room in reversed(rooms.values()):
                if room.stamp <= seen:
                    break
                if room.fgpu < fgpu or room.cpu < cpu or room.memory < memory or room.is_closed:
                    continue
                if fgpu % room.grain or room.host_id == avoided:
                    continue
                heappush(changed, policy.rank(room, self._shape) if policy.by_shape else room.rank)
        self._seen = self._group.changes

    def _first_unchanged(self) -> Rank | None:
        order, rooms, shape, avoided = self._order, self._group.rooms, self._shape, self._avoided
        skipped = self._group.skip_changed() if order is self._group.order else 0
        for position in range(max(self._position, skipped), len(order)):
            rank = order[position]
            room = rooms[rank[-2]]
            if room.stamp == rank[-1] and room.fits(shape) and room.host_id != avoided:
                self._position = position
                return rank
        self._position = len(order)
        return None
