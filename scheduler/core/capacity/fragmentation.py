"""Fragmentation of free GPU on a host, the measure of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023). Pure.

The fragmentation of a host is the free GPU on it that a request drawn from the usual ones cannot use, in expectation.
Here the usual requests have whole weights: their counts, or by scarcity, so that free GPU counts more where those can
use it that few hosts can hold.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, groupby
from operator import itemgetter
from typing import Final

from scheduler.core.types import GPU_MODEL_TRAIT, HostView, Shape, Traits

MIX_COVERAGE_PERCENT: Final = 95  # of all requests with GPU that the mix keeps: rarer shapes only cost time
WEIGHT_SCALE: Final = 1000  # of a request that every host with GPUs can hold: what scarcity is rounded to


def gpu_models(traits: Iterable[str]) -> Traits:
    """Return those of the traits that are of the GPU model: the others are not looked at here."""
    return tuple(trait for trait in traits if trait.startswith(f"{GPU_MODEL_TRAIT}:"))


def usual_shapes(mix: Iterable[tuple[Shape, int]]) -> list[tuple[Shape, int]]:
    """Return the most frequent shapes with GPU that together make up 95 % of those of `mix`, with their counts."""
    counted: dict[Shape, int] = {}
    for shape, count in mix:
        if shape.fgpu_milli:
            counted[shape] = counted.get(shape, 0) + count
    enough = MIX_COVERAGE_PERCENT * sum(counted.values())
    chosen: list[tuple[Shape, int]] = []
    total = 0
    for shape, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        if 100 * total >= enough:
            break
        chosen.append((shape, count))
        total += count
    return chosen


def weighed_by_scarcity(usual: Iterable[tuple[Shape, int]], hosts: Iterable[HostView]) -> list[tuple[Shape, int]]:
    """Return the shapes with their counts over the square of the part of all GPU that is on hosts that can hold them.

    Keeping GPU free by these weights lowers the sum of count ÷ usable GPU, to the first order: alpha-fairness with
    alpha 2 (Mo and Walrand, 2000), least potential delay. What no host could hold has no weight.
    """
    kinds = Counter(
        (host.cpu, host.memory_bytes, sum(gpu.capacity_milli for gpu in host.gpus), frozenset(gpu_models(host.traits)))
        for host in hosts
    )
    all_milli = sum(milli * number for (_, _, milli, _), number in kinds.items())
    weighed = []
    for shape, count in usual:
        supply = sum(
            milli * number
            for (cpu, memory_bytes, milli, traits), number in kinds.items()
            if cpu >= shape.cpu
            and memory_bytes >= shape.memory_bytes
            and milli >= shape.fgpu_milli
            and traits.issuperset(shape.traits)
        )
        if supply:
            weighed.append((shape, WEIGHT_SCALE * count * all_milli**2 // supply**2))
    return weighed


class Fragmentation:
    """Fragmentation under the usual requests of one group; results are cached."""

    def __init__(self, usual: Sequence[tuple[Shape, int]], gpu_capacity: int) -> None:
        """Take the usual requests, all with GPU, with their weights, and the milli-fGPU of a whole GPU of the group."""
        self._gpu_capacity = max(1, gpu_capacity)
        self.total_weight = sum(weight for _, weight in usual) or 1
        usual = sorted(usual, key=lambda each: self._need(each[0]))
        self._usual = [shape for shape, _ in usual]
        self._uses = [(*self._need(shape), weight) for shape, weight in usual]
        self._cpu_steps, self._by_cpu = _sets_up_to([shape.cpu for shape in self._usual])
        self._memory_steps, self._by_memory = _sets_up_to([shape.memory_bytes for shape in self._usual])
        self._by_traits: dict[frozenset[str], int] = {}
        self._tables: dict[int, _Table] = {}
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}

    def _need(self, shape: Shape) -> tuple[int, int]:
        """Return how many whole devices a request takes, and the least that must be free of one to be of use to it."""
        whole, part = divmod(shape.fgpu_milli, self._gpu_capacity)
        return whole, part or self._gpu_capacity

    def unusable(self, cpu: int, memory_bytes: int, device_free: Sequence[int], traits: frozenset[str]) -> int:
        """Return the milli-fGPU that the usual requests cannot use on a host with this left, times `total_weight`."""
        able = self._by_traits.get(traits)
        if able is None:
            able = self._by_traits[traits] = _bits(traits.issuperset(shape.traits) for shape in self._usual)
        able &= self._by_cpu[bisect_right(self._cpu_steps, cpu)]
        able &= self._by_memory[bisect_right(self._memory_steps, memory_bytes)]
        key = able, tuple(sorted(device_free))
        known = self._known.get(key)
        if known is None:
            table = self._tables.get(able)
            if table is None:
                uses = compress(self._uses, map(int, reversed(f"{able:b}")))
                table = self._tables[able] = _Table(uses, self._gpu_capacity)
            known = self._known[key] = sum(device_free) * self.total_weight - table.useful(key[1])
        return known


def _bits(are_in: Iterable[bool]) -> int:
    """Return the set of the places of what is true, as the bits of an integer."""
    return sum(is_in << place for place, is_in in enumerate(are_in))


def _sets_up_to(amounts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the different amounts, ascending, and of how many of them are reached the set of the amounts reached."""
    steps = sorted(set(amounts))
    return steps, [0, *(_bits(amount <= step for amount in amounts) for step in steps)]


class _Table:
    """Use of hosts whose free cores, memory and traits suffice for the same usual requests, and no others.

    A request of w whole devices and a part can use the devices with at least the part free (without a part: whole
    ones), provided that w devices are whole; smaller devices are unusable for it. Otherwise all are.
    """

    def __init__(self, able: Iterable[tuple[int, int, int]], gpu_capacity: int) -> None:
        """Take what each of the requests needs, and its weight, ascending."""
        self._gpu_capacity = gpu_capacity
        self._by_whole: list[tuple[int, list[int], list[int]]] = []  # w, least amounts, weights of the first n
        for whole, requests in groupby(able, key=itemgetter(0)):
            _, minimum, weights = zip(*requests, strict=True)
            self._by_whole.append((whole, list(minimum), list(accumulate(weights, initial=0))))

    def useful(self, sorted_free: Sequence[int]) -> int:
        """Return the free milli-fGPU that each request can use, times its weight, summed."""
        free_whole = len(sorted_free) - bisect_right(sorted_free, self._gpu_capacity - 1)
        useful = 0
        for whole, minimum, weights in self._by_whole:
            if whole <= free_whole:
                useful += sum(free * weights[bisect_right(minimum, free)] for free in sorted_free if free)
        return useful
