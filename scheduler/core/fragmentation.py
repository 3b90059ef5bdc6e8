"""How much free GPU of a host the usual requests could not use: the measure behind `Where.FGD`. Pure.

After "Beware of Fragmentation" (Weng et al., USENIX ATC 2023): a host's fragmentation is the free GPU that a request
drawn from the usual mix cannot use there, in the mean. Placing where it grows least keeps what is free useful.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.core.types import Shape

COVERED: Final = 0.95  # of all requests: the rare rest only costs time


def usual(mix: Iterable[tuple[Shape, int]]) -> list[tuple[Shape, float]]:
    """Return the most frequent shapes of `mix` that together make up 95 %, with their weights, which sum to 1."""
    counted: dict[Shape, int] = {}
    for shape, count in mix:
        counted[shape] = counted.get(shape, 0) + count
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    enough = COVERED * sum(counted.values())
    chosen: list[tuple[Shape, int]] = []
    total = 0
    for shape, count in ranked:
        if total >= enough:
            break
        chosen.append((shape, count))
        total += count
    return [(shape, count / total) for shape, count in chosen]


class Fragmentation:
    """The measure for one group's mix; remembers what it has computed."""

    def __init__(self, mix: Iterable[tuple[Shape, int]], gpu_capacity: int) -> None:
        """Take the usual requests and how often each is made, and what a whole GPU of the group holds."""
        self._usual = usual(mix)
        self._capacity = max(1, gpu_capacity)
        with_gpu = [(shape, weight) for shape, weight in self._usual if shape.fgpu]
        fgpu = sum(shape.fgpu * weight for shape, weight in with_gpu)
        self._fgpu_per_core = fgpu / (sum(shape.cpu * weight for shape, weight in with_gpu) or 1)
        self._fgpu_per_byte = fgpu / (sum(shape.memory * weight for shape, weight in with_gpu) or 1)
        self._cpu_steps = sorted({shape.cpu for shape, _ in self._usual})
        self._memory_steps = sorted({shape.memory for shape, _ in self._usual})
        self._tables: dict[tuple[int, int], _Table] = {}
        self._known: dict[tuple[int, int, tuple[int, ...]], float] = {}

    def of(self, cpu: int, memory: int, device_free: Sequence[int]) -> float:
        """Return the expected milli-fGPU out of use on a host with so much free on its devices."""
        level = (bisect_right(self._cpu_steps, cpu), bisect_right(self._memory_steps, memory))
        key = (*level, tuple(sorted(device_free)))
        known = self._known.get(key)
        if known is None:
            table = self._tables.get(level)
            if table is None:
                able = [(s, w) for s, w in self._usual if s.cpu <= cpu and s.memory <= memory]
                table = self._tables[level] = _Table(able, self._capacity)
            known = self._known[key] = table.lost(key[2])
        return known

    def short(self, cpu: int, memory: int, free: int) -> float:
        """Return how much of the free milli-fGPU the cores or the memory will not do for, at the mix's mean rate."""
        return max(0.0, free - cpu * self._fgpu_per_core, free - memory * self._fgpu_per_byte)


class _Table:
    """The measure among hosts that have the cores and the memory for the same of the usual requests.

    A request of w whole devices and a rest uses devices with at least the rest (whole ones, without a rest) free, if
    w devices are whole; then the smaller ones are lost to it. Otherwise everything is.
    """

    def __init__(self, able: Sequence[tuple[Shape, float]], capacity: int) -> None:
        self._capacity = capacity
        self._smallest: list[list[int]] = []  # by w: what a device must have free to be of use, ascending
        self._useful: list[list[float]] = []  # by w: chance that a device with at least that much free is of use
        by_whole: dict[int, dict[int, float]] = {}
        for shape, weight in able:
            whole, rest = divmod(shape.fgpu, capacity)
            if shape.fgpu:
                smallest = by_whole.setdefault(whole, {})
                smallest[rest or capacity] = smallest.get(rest or capacity, 0.0) + weight
        for whole in range(max(by_whole, default=0) + 1):
            steps = sorted(by_whole.get(whole, {}).items())
            self._smallest.append([smallest for smallest, _ in steps])
            sums = [0.0]
            for _, weight in steps:
                sums.append(sums[-1] + weight)
            self._useful.append(sums)

    def lost(self, device_free: Sequence[int]) -> float:
        """Return the free milli-fGPU, ascending by device, less what is of use to a request drawn from the mix."""
        whole = len(device_free) - bisect_right(device_free, self._capacity - 1)
        useful = 0.0
        for w, (smallest, sums) in enumerate(zip(self._smallest, self._useful, strict=True)):
            if w > whole:
                break
            for free in device_free:
                if free:
                    useful += free * sums[bisect_right(smallest, free)]
        return sum(device_free) - useful
