"""How close the GPUs of a host are to each other, and the choice of devices by it. Pure.

The choice follows the best-effort policy of NVIDIA's Kubernetes device plugin (`go-gpuallocator`): the free devices
whose closeness, summed over their pairs, is highest; among equal sets the one that leaves the others closest.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

from scheduler.core.types import Closeness

MAX_SETS: Final = 2000  # of devices that are compared; beyond, as from 14 free devices on, a greedy choice


class GpuCloseness:
    """Closeness of a host's devices by pairs: higher is closer. Hosts that are wired alike share one instance."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Closeness) -> None:
        """Take a symmetrical matrix, by position of the devices."""
        self._pairs = pairs

    def choose(self, free: Sequence[int], count: int, member: int | None = None) -> tuple[int, ...]:
        """Return `count` of the devices `free`, which are as close as can be, ascending.

        `member` is a device that belongs to the set already. Among equal sets it is that of the lowest positions.
        """
        if count >= len(free):
            return tuple(free)
        return _choose(self, tuple(free), count, member)

    def total(self, devices: Iterable[int]) -> int:
        """Return the closeness summed over all pairs of these devices."""
        pairs = self._pairs
        return sum(pairs[one][other] for one, other in combinations(devices, 2))

    def between(self, device: int, others: Iterable[int]) -> int:
        """Return the closeness of a device to others, summed."""
        return sum(map(self._pairs[device].__getitem__, others))


@lru_cache(maxsize=4096)
def closeness_of(pairs: Closeness) -> GpuCloseness | None:
    """Return the closeness for a matrix; None where it makes no difference, as where all pairs are equal."""
    values = {pairs[one][other] for one, other in combinations(range(len(pairs)), 2)}
    return GpuCloseness(pairs) if len(values) > 1 else None


@lru_cache(maxsize=65_536)
def _choose(closeness: GpuCloseness, free: tuple[int, ...], count: int, member: int | None) -> tuple[int, ...]:
    fixed = () if member is None else (member,)
    sets: Iterable[tuple[int, ...]] = combinations(free, count)
    if comb(len(free), count) > MAX_SETS:
        sets = sorted({_grown(closeness, free, count, fixed, first) for first in free})

    def rank(chosen: tuple[int, ...]) -> tuple[int, int]:
        return closeness.total((*chosen, *fixed)), closeness.total(set(free).difference(chosen))

    return max(sets, key=rank)  # the first of equal ones


def _grown(
    closeness: GpuCloseness, free: tuple[int, ...], count: int, fixed: tuple[int, ...], first: int
) -> tuple[int, ...]:
    """Return `count` devices, begun with `first`: each next one is the closest to those before."""
    chosen, left = [first], [device for device in free if device != first]
    while len(chosen) < count:
        inside = (*chosen, *fixed)
        nearest = max(left, key=lambda device: (closeness.between(device, inside), -closeness.between(device, left)))
        chosen.append(nearest)
        left.remove(nearest)
    return tuple(sorted(chosen))
