"""Placement policies: which of the hosts that fit takes a session, and which of its devices. Pure.

A policy ranks hosts, the lowest rank first. A rank ends with the host's index and version, so that no two are equal and
an outdated one is recognized. Breaking ties by index fills one host before the next; on traces this decides more than
the scores themselves.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from scheduler.core.capacity.fragmentation import Fragmentation, usual_shapes, weighed_by_scarcity
from scheduler.core.capacity.host_capacity import HostCapacity, Rank
from scheduler.core.types import HostView, PlacementPolicyName, Rules, Shape

SCORE_STEPS: Final = 12  # of a whole useless GPU: coarse on purpose, so that packing decides among near equals


class PlacementPolicy(Protocol):
    """Ranks hosts for a shape. Ranks end with the host's index and version, by which the search finds the host."""

    depends_on_shape: bool  # False: one rank of a host serves all shapes
    begins_with_free: bool  # True: ranks begin with the free milli-fGPU, so the search skips hosts with less
    takes_most_free: bool  # True: of devices that fit, the one with the most free is preferred

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return the rank of a host on which `shape` fits; the lowest is preferred."""
        ...

    def devices(self, host: HostCapacity, shape: Shape, part_milli: int) -> Sequence[int]:
        """Return the indexes of the host's `part_devices` for a shape that fits, the preferred first."""
        ...

    def device(self, host: HostCapacity, shape: Shape, part_milli: int) -> int:
        """Return the first of `devices`; there must be one."""
        ...


class PackPolicy:
    """Best fit: least free GPU, then fewest GPUs, then lowest index; on the host the device with the least free.

    Hosts without GPUs are compared by free cores and memory before the index. Doing so for hosts with GPUs costs a
    third of a percent of all GPUs on the openb trace, as it drives the cores and GPUs of a host apart.
    """

    depends_on_shape = False
    begins_with_free = True
    takes_most_free = False

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return the free amounts, smallest first."""
        if host.device_free:
            return host.total_free, len(host.device_free), host.index, host.version
        return 0, 0, host.cpu, host.memory_bytes, host.index, host.version

    def devices(self, host: HostCapacity, shape: Shape, part_milli: int) -> Sequence[int]:
        """Return the fitting devices, the one with the least free first."""
        return sorted(host.part_devices(shape.fgpu_milli), key=host.device_free.__getitem__)

    def device(self, host: HostCapacity, shape: Shape, part_milli: int) -> int:
        """Return the fitting device with the least free."""
        sorted_free = host.sorted_free
        return host.device_free.index(sorted_free[bisect_left(sorted_free, part_milli)])


class SpreadPolicy:
    """Worst fit: most free GPU, then cores, then memory; on the host the device with the most free."""

    depends_on_shape = False
    begins_with_free = False
    takes_most_free = True

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return the free amounts, largest first."""
        return -host.total_free, -host.cpu, -host.memory_bytes, host.index, host.version

    def devices(self, host: HostCapacity, shape: Shape, part_milli: int) -> Sequence[int]:
        """Return the fitting devices, the one with the most free first."""
        free = host.device_free
        return sorted(host.part_devices(shape.fgpu_milli), key=lambda d: (-free[d], d))

    def device(self, host: HostCapacity, shape: Shape, part_milli: int) -> int:
        """Return the device with the most free that leaves enough whole ones for the rest of the request."""
        if shape.fgpu_milli > host.gpu_capacity:
            return self.devices(host, shape, part_milli)[0]
        return host.device_free.index(host.sorted_free[-1])


class BalancePolicy:
    """Least growth of free GPU that is of no use, then lowest index: FGD (Weng et al., ATC 2023), made to balance.

    What the usual requests cannot use counts by their scarcity, so that GPU stays free on hosts that few can replace.
    Free GPU beyond what the free cores or memory beside it can serve at the mean rates of the usual requests counts as
    well: FGD notices a shortage of cores only when a usual request fits no longer. That keeps cores and GPUs of a host
    in step, and sends requests with many cores to hosts that have many.
    """

    depends_on_shape = True
    begins_with_free = False
    takes_most_free = False

    def __init__(self, mix: Iterable[tuple[Shape, int]], hosts: Iterable[HostView], gpu_capacity: int) -> None:
        """Take the mix of requests, the hosts, and the milli-fGPU of a whole GPU."""
        usual = usual_shapes(mix)
        self._fragmentation = Fragmentation(weighed_by_scarcity(usual, hosts), gpu_capacity)
        self._step = self._fragmentation.total_weight * max(1, gpu_capacity) // SCORE_STEPS or 1
        self._fgpu_milli = sum(shape.fgpu_milli * count for shape, count in usual)
        self._cpu = sum(shape.cpu * count for shape, count in usual) or 1
        self._memory_bytes = sum(shape.memory_bytes * count for shape, count in usual) or 1

    def useless(self, cpu: int, memory_bytes: int, device_free: Sequence[int], traits: frozenset[str]) -> int:
        """Return the fragmentation of a host with this left, and its GPU that cores or memory will not serve.

        In milli-fGPU, times the weight of all usual requests.
        """
        unusable = self._fragmentation.unusable(cpu, memory_bytes, device_free, traits)
        served = min(cpu * self._fgpu_milli // self._cpu, memory_bytes * self._fgpu_milli // self._memory_bytes)
        shortage = sum(device_free) - served
        return unusable + shortage * self._fragmentation.total_weight if shortage > 0 else unusable

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return the growth in steps, rounded up."""
        return -(-self.growth(host, shape) // self._step), host.index, host.version

    def growth(self, host: HostCapacity, shape: Shape) -> int:
        """Return by how much more is `useless` once `shape` is taken."""
        if shape.members == 1 and shape.fgpu_milli and shape.fgpu_milli % host.gpu_capacity:
            later = min(self._left_by_part(host, shape).values())
        else:
            later = self._useless_after(host, shape, split_of(self, host, shape, is_close=False))
        if host.useless is None:
            host.useless = self.useless(host.cpu, host.memory_bytes, host.device_free, host.traits)
        return later - host.useless

    def devices(self, host: HostCapacity, shape: Shape, part_milli: int) -> Sequence[int]:
        """Return the fitting devices, by the useless GPU they leave, then by their free amount."""
        if not part_milli:
            return ()
        free, left = host.device_free, self._left_by_part(host, shape)
        return sorted(host.part_devices(shape.fgpu_milli), key=lambda d: (left[free[d]], free[d], d))

    def _left_by_part(self, host: HostCapacity, shape: Shape) -> dict[int, int]:
        """Return `useless` once `shape` is taken, by what is free before of the device that gives the part."""
        free = host.device_free
        return {
            value: self._useless_after(host, shape, host.first_split(shape.fgpu_milli, [free.index(value)]))
            for value in {free[d] for d in host.part_devices(shape.fgpu_milli)}
        }

    def device(self, host: HostCapacity, shape: Shape, part_milli: int) -> int:
        """Return the fitting device that leaves the least useless GPU."""
        return self.devices(host, shape, part_milli)[0]

    def _useless_after(self, host: HostCapacity, shape: Shape, split: Mapping[int, int]) -> int:
        """Return `useless` once `shape` is taken, split over the devices as given."""
        device_free = list(host.device_free)
        for device, share in split.items():
            device_free[device] -= share
        return self.useless(host.cpu - shape.cpu, host.memory_bytes - shape.memory_bytes, device_free, host.traits)


def split_of(policy: PlacementPolicy, host: HostCapacity, shape: Shape, *, is_close: bool = True) -> dict[int, int]:
    """Return {device index: milli-fGPU} as the policy divides a shape that fits; `is_close`: by closeness as well."""
    if shape.members > 1:
        return host.split_members(shape, most_free_first=policy.takes_most_free)
    part = shape.fgpu_milli % host.gpu_capacity if shape.fgpu_milli else 0
    part_devices = (policy.device(host, shape, part),) if part else ()
    return (host.split if is_close else host.first_split)(shape.fgpu_milli, part_devices)


def policy_for(
    rules: Rules,
    gpu_capacity: int,
    mix: Callable[[], Iterable[tuple[Shape, int]]],
    hosts: Iterable[HostView],
) -> PlacementPolicy:
    """Return the policy of a group whose GPUs hold `gpu_capacity` milli-fGPU; `mix` is called where it is needed."""
    if rules.placement_policy == PlacementPolicyName.PACK:
        return PackPolicy()
    if rules.placement_policy == PlacementPolicyName.SPREAD:
        return SpreadPolicy()
    return BalancePolicy(mix(), hosts, gpu_capacity)
