"""Hosts of the oracle: what fits, how devices are chosen, and which host a policy prefers; by trying everything.

Amounts on a device go below zero where a session holds in advance what others leave.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from scheduler.core.types import HostView, PlacementPolicyName, RunningSession, Shape

Split = dict[int, int]  # milli-fGPU by position of the device


@dataclass
class Host:
    """One host with what is left of it."""

    view: HostView
    cpu: int
    memory: int
    free: list[int]

    @property
    def name(self) -> tuple[str, int]:
        return self.view.name, self.view.id

    @property
    def capacity(self) -> int:
        return self.view.gpus[0].capacity_milli if self.view.gpus else 0

    def empty(self) -> list[int]:
        """Return the devices of which nothing is taken."""
        return [place for place, amount in enumerate(self.free) if amount == self.capacity]

    def copy(self) -> "Host":
        return Host(self.view, self.cpu, self.memory, list(self.free))

    def add(self, session: RunningSession, sign: int) -> None:
        """Take what a session holds (-1), or give it back (1)."""
        self.cpu += sign * session.shape.cpu
        self.memory += sign * session.memory_bytes
        for gpu_id, milli in session.shares:
            for place, gpu in enumerate(self.view.gpus):
                if gpu.id == gpu_id:
                    self.free[place] += sign * milli

    def after(self, shape: Shape, split: Split) -> "Host":
        free = [amount - split.get(place, 0) for place, amount in enumerate(self.free)]
        return Host(self.view, self.cpu - shape.cpu, self.memory - shape.memory_bytes, free)

    def ways(self, milli: int) -> Iterator[tuple[int | None, tuple[int, ...]]]:
        """Yield how the host can give so much: the device of the part, and the whole devices."""
        whole, part = divmod(milli, self.capacity) if self.capacity else (0, milli)
        if part and not self.view.divides:
            return
        for chosen in combinations(self.empty(), whole):
            if not part:
                yield None, chosen
            for place, amount in enumerate(self.free):
                if 0 < part <= amount and place not in chosen:
                    yield place, chosen

    def fits(self, shape: Shape) -> bool:
        return (
            self.cpu >= shape.cpu
            and self.memory >= shape.memory_bytes
            and set(shape.traits) <= self.view.traits
            and (not shape.fgpu_milli or self._has_gpus(shape))
        )

    def _has_gpus(self, shape: Shape) -> bool:
        if shape.members == 1:
            return next(self.ways(shape.fgpu_milli), None) is not None
        each = shape.member_milli
        if each >= self.capacity:
            return not each % (self.capacity or each + 1) and len(self.empty()) * self.capacity >= shape.fgpu_milli
        return self.view.divides and cluster_split(self, shape, range(len(self.free))) is not None

    def largest(self) -> int:
        """Return the largest request for GPU that fits."""
        sizes = range(sum(self.free) + self.capacity + 1) if self.capacity else range(1)
        steps = [milli for milli in sizes if milli % 50 == 0]
        return max((milli for milli in steps if not milli or next(self.ways(milli), None)), default=0)

    def close(self, places: Sequence[int]) -> int:
        """Return how close devices are, over all pairs."""
        pairs = self.view.closeness
        return sum(pairs[one][other] for one, other in combinations(places, 2)) if pairs else 0

    @property
    def is_wired(self) -> bool:
        """Whether it makes a difference which devices a session gets."""
        pairs = self.view.closeness
        return len({pairs[one][other] for one, other in combinations(range(len(pairs)), 2)}) > 1


def split_with(host: Host, shape: Shape, part_device: int | None) -> Split:
    """Return the split of a shape: the closest devices, then those whose loss leaves the others closest."""
    whole, part = divmod(shape.fgpu_milli, host.capacity) if host.capacity else (0, 0)
    empty = host.empty()
    shared = [part_device] if part_device is not None and part_device not in empty else []
    moves = part_device is not None and not shared  # the part goes to a free device, whichever suits
    if moves and not host.is_wired:
        others = [place for place in empty if place != part_device][:whole]
        return dict.fromkeys(others, host.capacity) | {part_device or 0: part}
    chosen = min(
        combinations(empty, whole + moves),
        key=lambda places: (
            -host.close([*places, *shared]),
            -host.close([place for place in empty if place not in places]),
            places,
        ),
    )
    split = dict.fromkeys(chosen, host.capacity)
    if part:
        split[chosen[0] if moves else shared[0]] = part
    return split


def cluster_split(host: Host, shape: Shape, places: Sequence[int]) -> Split | None:
    """Return the split of the members' parts of devices, member by member over the places; None if one finds none."""
    each, split = shape.member_milli, dict[int, int]()
    for _ in range(shape.gpu_members):
        for place in places:
            taken = split.get(place, 0)
            if host.free[place] - taken >= each and (shape.shares_gpus or not taken):
                split[place] = taken + each
                break
        else:
            return None
    return split


class Policy:
    """Which of the hosts that fit takes a shape, and which device the part."""

    def __init__(
        self, name: PlacementPolicyName, mix: Sequence[tuple[Shape, int]], capacity: int, views: Sequence[HostView]
    ) -> None:
        self.name = name
        self.capacity = max(1, capacity)
        with_gpu = [(count, shape) for shape, count in _counted(mix) if shape.fgpu_milli]
        ordered = sorted(with_gpu, key=lambda it: (-it[0], it[1]))
        total, needed = 0, 95 * sum(count for count, _ in ordered)
        self.usual = []
        for count, shape in ordered:
            if 100 * total < needed:
                self.usual.append((shape, count))
                total += count
        gpus = sum(len(view.gpus) for view in views)
        self.weights = {
            shape: 1000 * count * gpus**2 // able**2
            for shape, count in self.usual
            if (able := sum(len(view.gpus) for view in views if self._could_hold(view, shape)))
        }
        self.all_weight = sum(self.weights.values()) or 1

    def _could_hold(self, view: HostView, shape: Shape) -> bool:
        has_model = all(trait in view.traits for trait in shape.traits)
        has_amounts = view.cpu >= shape.cpu and view.memory_bytes >= shape.memory_bytes
        return has_model and has_amounts and len(view.gpus) * self.capacity >= shape.fgpu_milli

    def rank(self, host: Host, shape: Shape) -> tuple[object, ...]:
        """Return the rank of a host: the lowest is taken."""
        free = sum(max(0, amount) for amount in host.free)
        if self.name == PlacementPolicyName.PACK:
            rest = () if host.view.gpus else (host.cpu, host.memory)
            return free, len(host.free), *rest, *host.name
        if self.name == PlacementPolicyName.SPREAD:
            return -free, -host.cpu, -host.memory, *host.name
        part = shape.fgpu_milli % self.capacity if shape.members == 1 else 0
        device = self.devices(host, shape)[0] if part else None
        later = self._after(host, shape, device) if shape.members == 1 else host.after(shape, self.split(host, shape))
        growth, step = self.useless(later) - self.useless(host), max(1, self.all_weight * self.capacity // 12)
        return -(-growth // step), *host.name

    def split(self, host: Host, shape: Shape) -> Split:
        """Return the split of a shape that fits."""
        each = shape.member_milli
        if shape.members == 1 or not each or each >= host.capacity:
            return split_with(host, shape, next(iter(self.devices(host, shape)), None))
        sign = -1 if self.name == PlacementPolicyName.SPREAD else 1
        places = sorted(range(len(host.free)), key=lambda place: (sign * host.free[place], place))
        split = cluster_split(host, shape, places)
        assert split is not None
        return split

    def devices(self, host: Host, shape: Shape) -> list[int]:
        """Return the devices that can give the part, the preferred first."""
        if shape.members > 1:
            return []
        able = sorted({place for place, _ in host.ways(shape.fgpu_milli) if place is not None})
        if self.name == PlacementPolicyName.PACK:
            return sorted(able, key=lambda place: (host.free[place], place))
        if self.name == PlacementPolicyName.SPREAD:
            return sorted(able, key=lambda place: (-host.free[place], place))
        left = {place: self.useless(self._after(host, shape, place)) for place in able}
        return sorted(able, key=lambda place: (left[place], host.free[place], place))

    def _after(self, host: Host, shape: Shape, device: int | None) -> Host:
        whole, part = divmod(shape.fgpu_milli, self.capacity)
        split = {device: part} if part and device is not None else {}
        split |= dict.fromkeys([place for place in host.empty() if place not in split][:whole], self.capacity)
        return host.after(shape, split)

    def useless(self, host: Host) -> int:
        """Return the GPU of a host that the usual requests, or the cores and memory beside it, cannot use, weighed."""
        free = [max(0, amount) for amount in host.free]
        lost = 0
        for shape, weight in self.weights.items():
            whole, part = divmod(shape.fgpu_milli, self.capacity)
            is_able = shape.cpu <= host.cpu and shape.memory_bytes <= host.memory
            is_able = is_able and all(trait in host.view.traits for trait in shape.traits)
            is_able = is_able and free.count(self.capacity) >= whole
            lost += sum(each for each in free if not is_able or each < (part or self.capacity)) * weight
        milli = sum(shape.fgpu_milli * count for shape, count in self.usual)
        by_cores = host.cpu * milli // (sum(shape.cpu * count for shape, count in self.usual) or 1)
        by_memory = host.memory * milli // (sum(shape.memory_bytes * count for shape, count in self.usual) or 1)
        lost = lost if self.weights else sum(free)
        return lost + max(0, sum(free) - by_cores, sum(free) - by_memory) * self.all_weight


def _counted(mix: Sequence[tuple[Shape, int]]) -> Iterator[tuple[Shape, int]]:
    for shape in dict.fromkeys(shape for shape, _ in mix):
        yield shape, sum(count for other, count in mix if other == shape)
