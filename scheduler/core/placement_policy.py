"""Which of the hosts that fit takes a session, and which of its devices: the policies of `Where`. Pure.

A policy ranks rooms: the lowest rank is tried first. Ranks end with the room's index and the stamp of its last change,
so that no two are equal and an outdated one is known. Ties decide more than scores do: all of them fill one host before
the next.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import exp, floor
from typing import Final, Protocol

from scheduler.core.fragmentation import Fragmentation
from scheduler.core.host_capacity import HostCapacity, Rank
from scheduler.core.types import PlacementPolicyName, Rules, Shape

LEVELS: Final = 100  # steps of the fragmentation score: coarse on purpose, so that packing decides among near equals


class PlacementPolicy(Protocol):
    """Ranks rooms for a shape. `by_shape` is false where the shape does not matter: ranks are then shared."""

    by_shape: bool

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return the place of a room that fits `shape` among those that do; the lowest is best."""
        ...

    def devices(self, host: HostCapacity, shape: Shape, rest: int) -> Sequence[int]:
        """Return the devices with at least `rest` milli-fGPU free, the best first, for what is not whole devices."""
        ...

    def device(self, host: HostCapacity, shape: Shape, rest: int) -> int:
        """Return the first of `devices`; there must be one."""
        ...


class PackPolicy:
    """The least free GPU, then the fewest GPUs, then the first; on it the tightest device.

    Among hosts without GPUs the least free CPU and memory come before the first. Among those with GPUs that would cost
    a third of a percent of all GPUs on the openb trace, since it drives cores and GPUs of a host apart.
    """

    by_shape = False

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return what is free, smallest first."""
        if host.device_free:
            return host.free, len(host.device_free), host.index, host.version
        return 0, 0, host.cpu, host.memory, host.index, host.version

    def devices(self, host: HostCapacity, shape: Shape, rest: int) -> Sequence[int]:
        """Return those that fit, the tightest first."""
        device_free = host.device_free
        return sorted((d for d in range(len(device_free)) if device_free[d] >= rest), key=device_free.__getitem__)

    def device(self, host: HostCapacity, shape: Shape, rest: int) -> int:
        """Return the tightest that fits."""
        sorted_free = host.sorted_free
        return host.device_free.index(sorted_free[bisect_left(sorted_free, rest)])


class SpreadPolicy:
    """The most free GPU, then CPU and memory; on it the emptiest device."""

    by_shape = False

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return what is free, largest first."""
        return -host.free, -host.cpu, -host.memory, host.index, host.version

    def devices(self, host: HostCapacity, shape: Shape, rest: int) -> Sequence[int]:
        """Return those that fit, the emptiest first."""
        device_free = host.device_free
        return sorted(
            (d for d in range(len(device_free)) if device_free[d] >= rest), key=lambda d: (-device_free[d], d)
        )

    def device(self, host: HostCapacity, shape: Shape, rest: int) -> int:
        """Return the emptiest."""
        return host.device_free.index(host.sorted_free[-1])


class FragmentationPolicy:
    """Fragmentation gradient descent: where the GPU out of use for the usual requests grows least, then the first."""

    by_shape = True

    def __init__(self, fragmentation: Fragmentation, capacity: int) -> None:
        """Take the measure and what a whole GPU holds."""
        self.fragmentation = fragmentation
        self._capacity = max(1, capacity)

    def lost(self, cpu: int, memory: int, device_free: Sequence[int]) -> float:
        """Return the milli-fGPU out of use on a host with so much free."""
        return self.fragmentation.of(cpu, memory, device_free)

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return the negated score."""
        growth = self._after(host, shape, self.devices(host, shape, shape.fgpu % self._capacity)[:1])
        growth -= self.lost(host.cpu, host.memory, host.device_free)
        score = floor(LEVELS / (1 + exp(growth / self._capacity)))
        return -score, host.index, host.version

    def devices(self, host: HostCapacity, shape: Shape, rest: int) -> Sequence[int]:
        """Return those that fit, first the one that leaves the least out of use, then the tightest."""
        if not rest:
            return ()
        device_free = host.device_free
        lost = {free: self._after(host, shape, [device_free.index(free)]) for free in set(device_free) if free >= rest}
        return sorted(
            (d for d in range(len(device_free)) if device_free[d] >= rest),
            key=lambda d: (lost[device_free[d]], device_free[d], d),
        )

    def device(self, host: HostCapacity, shape: Shape, rest: int) -> int:
        """Return the first of these."""
        return self.devices(host, shape, rest)[0]

    def _after(self, host: HostCapacity, shape: Shape, rest_on: Sequence[int]) -> float:
        """Return what is out of use once `shape` is taken with its rest on the device given."""
        device_free = list(host.device_free)
        for device, share in host.split(shape.fgpu, rest_on).items():
            device_free[device] -= share
        return self.lost(host.cpu - shape.cpu, host.memory - shape.memory, device_free)


class BalancePolicy(FragmentationPolicy):
    """As Descent, but free GPU for which the cores or the memory beside it will not last counts as out of use too.

    Descent sees that a host has too few cores only when a usual request fits there no longer. Counting the shortage
    from the first session on keeps cores and GPUs of a host in step, and sends what needs many cores to where many are.
    """

    def lost(self, cpu: int, memory: int, device_free: Sequence[int]) -> float:
        """Return the milli-fGPU out of use, and those that will be if requests go on as they are in the mean."""
        return self.fragmentation.of(cpu, memory, device_free) + self.fragmentation.short(cpu, memory, sum(device_free))


def policy_for(rules: Rules, capacity: int, mix: Callable[[], Sequence[tuple[Shape, int]]]) -> PlacementPolicy:
    """Return the policy of a group whose GPUs hold `capacity` for requests of the usual `mix`."""
    if rules.placement_policy == PlacementPolicyName.PACK:
        return PackPolicy()
    if rules.placement_policy == PlacementPolicyName.SPREAD:
        return SpreadPolicy()
    fragmentation = Fragmentation(mix(), capacity)
    return (
        FragmentationPolicy(fragmentation, capacity)
        if rules.placement_policy == PlacementPolicyName.FGD
        else BalancePolicy(fragmentation, capacity)
    )
