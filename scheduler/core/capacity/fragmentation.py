"""Fragmentation of free GPU on a host, the measure of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023). Pure.

The fragmentation of a host is the free GPU on it that a request drawn from the usual mix cannot use, in expectation.
Placing sessions where it grows least (FGD) keeps free GPU useful.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.core.types import Shape

MIX_COVERAGE: Final = 0.95  # part of all requests that the mix keeps: rarer shapes only cost time


def usual_shapes(mix: Iterable[tuple[Shape, int]]) -> list[tuple[Shape, float]]:
    """Return the most frequent shapes that together make up 95 % of `mix`, with weights that sum to 1."""
    counted: dict[Shape, int] = {}
    for shape, count in mix:
        counted[shape] = counted.get(shape, 0) + count
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    enough = MIX_COVERAGE * sum(counted.values())
    chosen: list[tuple[Shape, int]] = []
    total = 0
    for shape, count in ranked:
        if total >= enough:
            break
        chosen.append((shape, count))
        total += count
    return [(shape, count / total) for shape, count in chosen]


class Fragmentation:
    """Fragmentation under the mix of one group; results are cached."""

    def __init__(self, mix: Iterable[tuple[Shape, int]], gpu_capacity: int) -> None:
        """Take the usual requests with their counts, and the milli-fGPU of a whole GPU of the group."""
        self._usual = usual_shapes(mix)
        self._gpu_capacity = max(1, gpu_capacity)
        with_gpu = [(shape, weight) for shape, weight in self._usual if shape.fgpu_milli]
        fgpu_milli = sum(shape.fgpu_milli * weight for shape, weight in with_gpu)
        self._milli_per_core = fgpu_milli / (sum(shape.cpu * weight for shape, weight in with_gpu) or 1)
        self._milli_per_byte = fgpu_milli / (sum(shape.memory_bytes * weight for shape, weight in with_gpu) or 1)
        self._cpu_steps = sorted({shape.cpu for shape, _ in self._usual})
        self._memory_steps = sorted({shape.memory_bytes for shape, _ in self._usual})
        self._tables: dict[tuple[int, int], _Table] = {}
        self._known: dict[tuple[int, int, tuple[int, ...]], float] = {}

    def unusable_milli(self, cpu: int, memory_bytes: int, device_free: Sequence[int]) -> float:
        """Return the expected milli-fGPU that the mix cannot use on a host with these free amounts."""
        level = (bisect_right(self._cpu_steps, cpu), bisect_right(self._memory_steps, memory_bytes))
        key = (*level, tuple(sorted(device_free)))
        known = self._known.get(key)
        if known is None:
            table = self._tables.get(level)
            if table is None:
                able = [(s, w) for s, w in self._usual if s.cpu <= cpu and s.memory_bytes <= memory_bytes]
                table = self._tables[level] = _Table(able, self._gpu_capacity)
            known = self._known[key] = table.unusable_milli(key[2])
        return known

    def shortage_milli(self, cpu: int, memory_bytes: int, free_milli: int) -> float:
        """Return the free milli-fGPU that the free cores, or the free memory, cannot serve at the mix's mean rates."""
        return max(0.0, free_milli - cpu * self._milli_per_core, free_milli - memory_bytes * self._milli_per_byte)


class _Table:
    """Fragmentation of hosts whose free cores and memory suffice for the same usual requests.

    A request of w whole devices and a part can use the devices with at least the part free (without a part: whole
    ones), provided that w devices are whole; smaller devices are unusable for it. Otherwise all are.
    """

    def __init__(self, able: Sequence[tuple[Shape, float]], gpu_capacity: int) -> None:
        self._gpu_capacity = gpu_capacity
        self._minimum: list[list[int]] = []  # by w: least free amounts at which a device is of use, ascending
        self._useful: list[list[float]] = []  # by w: probability that a device above the first n of them is of use
        by_whole: dict[int, dict[int, float]] = {}
        for shape, weight in able:
            whole, part = divmod(shape.fgpu_milli, gpu_capacity)
            if shape.fgpu_milli:
                minimum = by_whole.setdefault(whole, {})
                minimum[part or gpu_capacity] = minimum.get(part or gpu_capacity, 0.0) + weight
        for whole in range(max(by_whole, default=0) + 1):
            steps = sorted(by_whole.get(whole, {}).items())
            self._minimum.append([minimum for minimum, _ in steps])
            sums = [0.0]
            for _, weight in steps:
                sums.append(sums[-1] + weight)
            self._useful.append(sums)

    def unusable_milli(self, sorted_free: Sequence[int]) -> float:
        """Return the free milli-fGPU less what a request drawn from the mix can use, in expectation."""
        whole = len(sorted_free) - bisect_right(sorted_free, self._gpu_capacity - 1)
        useful = 0.0
        for w, (minimum, sums) in enumerate(zip(self._minimum, self._useful, strict=True)):
            if w > whole:
                break
            for free in sorted_free:
                if free:
                    useful += free * sums[bisect_right(minimum, free)]
        return sum(sorted_free) - useful
