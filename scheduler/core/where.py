"""Which of the hosts that fit takes a session, and which of its devices: the policies of `Where`. Pure.

A policy ranks rooms: the lowest rank is tried first. Ranks end with the room's index and the stamp of its last change,
so that no two are equal and an outdated one is known. Ties decide more than scores do: all of them fill one host before
the next.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import exp, floor
from typing import TYPE_CHECKING, Final, Protocol

from scheduler.core.fragmentation import Fragmentation
from scheduler.core.terms import Rules, Shape, Where

if TYPE_CHECKING:
    from scheduler.core.room import Room

Rank = tuple[int, ...]
LEVELS: Final = 100  # steps of the fragmentation score: coarse on purpose, so that packing decides among near equals


class Policy(Protocol):
    """Ranks rooms for a shape. `by_shape` is false where the shape does not matter: ranks are then shared."""

    by_shape: bool

    def rank(self, room: "Room", shape: Shape) -> Rank:
        """Return the place of a room that fits `shape` among those that do; the lowest is best."""
        ...

    def devices(self, room: "Room", shape: Shape, rest: int) -> Sequence[int]:
        """Return the devices with at least `rest` milli-fGPU free, the best first, for what is not whole devices."""
        ...

    def device(self, room: "Room", shape: Shape, rest: int) -> int:
        """Return the first of `devices`; there must be one."""
        ...


class Pack:
    """The least free GPU, then the fewest GPUs, then the first; on it the tightest device.

    Among hosts without GPUs the least free CPU and memory come before the first. Among those with GPUs that would cost
    a third of a percent of all GPUs on the openb trace, since it drives cores and GPUs of a host apart.
    """

    by_shape = False

    def rank(self, room: "Room", shape: Shape) -> Rank:
        """Return what is free, smallest first."""
        if room.frees:
            return room.free, len(room.frees), room.index, room.stamp
        return 0, 0, room.cpu, room.memory, room.index, room.stamp

    def devices(self, room: "Room", shape: Shape, rest: int) -> Sequence[int]:
        """Return those that fit, the tightest first."""
        frees = room.frees
        return sorted((d for d in range(len(frees)) if frees[d] >= rest), key=frees.__getitem__)

    def device(self, room: "Room", shape: Shape, rest: int) -> int:
        """Return the tightest that fits."""
        levels = room.levels
        return room.frees.index(levels[bisect_left(levels, rest)])


class Spread:
    """The most free GPU, then CPU and memory; on it the emptiest device."""

    by_shape = False

    def rank(self, room: "Room", shape: Shape) -> Rank:
        """Return what is free, largest first."""
        return -room.free, -room.cpu, -room.memory, room.index, room.stamp

    def devices(self, room: "Room", shape: Shape, rest: int) -> Sequence[int]:
        """Return those that fit, the emptiest first."""
        frees = room.frees
        return sorted((d for d in range(len(frees)) if frees[d] >= rest), key=lambda d: (-frees[d], d))

    def device(self, room: "Room", shape: Shape, rest: int) -> int:
        """Return the emptiest."""
        return room.frees.index(room.levels[-1])


class Descent:
    """Fragmentation gradient descent: where the GPU out of use for the usual requests grows least, then the first."""

    by_shape = True

    def __init__(self, fragmentation: Fragmentation, capacity: int) -> None:
        """Take the measure and what a whole GPU holds."""
        self.fragmentation = fragmentation
        self._capacity = max(1, capacity)

    def lost(self, cpu: int, memory: int, frees: Sequence[int]) -> float:
        """Return the milli-fGPU out of use on a host with so much free."""
        return self.fragmentation.of(cpu, memory, frees)

    def rank(self, room: "Room", shape: Shape) -> Rank:
        """Return the negated score."""
        growth = self._after(room, shape, self.devices(room, shape, shape.fgpu % self._capacity)[:1])
        growth -= self.lost(room.cpu, room.memory, room.frees)
        score = floor(LEVELS / (1 + exp(growth / self._capacity)))
        return -score, room.index, room.stamp

    def devices(self, room: "Room", shape: Shape, rest: int) -> Sequence[int]:
        """Return those that fit, first the one that leaves the least out of use, then the tightest."""
        if not rest:
            return ()
        frees = room.frees
        lost = {free: self._after(room, shape, [frees.index(free)]) for free in set(frees) if free >= rest}
        return sorted((d for d in range(len(frees)) if frees[d] >= rest), key=lambda d: (lost[frees[d]], frees[d], d))

    def device(self, room: "Room", shape: Shape, rest: int) -> int:
        """Return the first of these."""
        return self.devices(room, shape, rest)[0]

    def _after(self, room: "Room", shape: Shape, rest_on: Sequence[int]) -> float:
        """Return what is out of use once `shape` is taken with its rest on the device given."""
        frees = list(room.frees)
        for device, share in room.split(shape.fgpu, rest_on).items():
            frees[device] -= share
        return self.lost(room.cpu - shape.cpu, room.memory - shape.memory, frees)


class Balance(Descent):
    """As Descent, but free GPU for which the cores or the memory beside it will not last counts as out of use too.

    Descent sees that a host has too few cores only when a usual request fits there no longer. Counting the shortage
    from the first session on keeps cores and GPUs of a host in step, and sends what needs many cores to where many are.
    """

    def lost(self, cpu: int, memory: int, frees: Sequence[int]) -> float:
        """Return the milli-fGPU out of use, and those that will be if requests go on as they are in the mean."""
        return self.fragmentation.of(cpu, memory, frees) + self.fragmentation.short(cpu, memory, sum(frees))


def policy_for(rules: Rules, capacity: int, mix: Callable[[], Sequence[tuple[Shape, int]]]) -> Policy:
    """Return the policy of a group whose GPUs hold `capacity` for requests of the usual `mix`."""
    if rules.where == Where.PACK:
        return Pack()
    if rules.where == Where.SPREAD:
        return Spread()
    fragmentation = Fragmentation(mix(), capacity)
    return Descent(fragmentation, capacity) if rules.where == Where.FGD else Balance(fragmentation, capacity)
