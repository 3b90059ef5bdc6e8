"""Compares placement policies: what they get onto the GPUs, how useful the rest is, and how long is waited.

`python -m bench.packing [--nodes CSV --pods CSV...]`, in the format of Alibaba's openb trace; without them a small
synthetic list is used. Prints what it does, and as its last line one JSON object.

Beside the policies of the product, `random` takes any host that fits and any of its GPUs, and `fgd` is that of the
authors (Weng et al., ATC 2023). `bound` is what no policy can exceed: all GPU, what hosts have of each model, and the
GPU that the cores of all hosts serve when those start first that ask for the fewest; sizes of GPUs and of hosts aside.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice, takewhile
from math import exp, floor
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final

import bench.apps_ready  # noqa: F401  # before what imports models
from bench.sizes import size
from bench.trace import Trace, synthetic_trace
from scheduler.core.capacity.fragmentation import Fragmentation, usual_shapes
from scheduler.core.capacity.group_capacity import GroupCapacity
from scheduler.core.capacity.host_capacity import HostCapacity, Rank
from scheduler.core.capacity.placement_policy import BalancePolicy, PackPolicy, policy_for
from scheduler.core.types import HostIds, PlacementPolicyName, Shape, Shares
from scheduler.simulation.trace import missing_traits, read_trace

LOADS: Final = (70, 85, 100, 115, 130)  # arrived demand in percent of all GPU
WAITING_LOADS: Final = (80, 90, 100)  # mean demand, with departures, in percent of all GPU
WAITING_HOSTS: Final = 16  # each of so many takes part
MEAN_MINUTES: Final = 60  # of a session that ends: log-normal with a sigma of 1
By = dict[str, float]
Groups = Mapping[str, Callable[[Trace, int], GroupCapacity]]  # empty hosts under a policy, by trace and seed


class RandomGroup(GroupCapacity):
    """Hosts of which any that fits is taken."""

    def __init__(self, hosts: Sequence[HostCapacity], seed: int) -> None:
        """Take the hosts, empty."""
        self._random = Random(seed)
        super().__init__(hosts, RandomDevice(self._random))

    def find(self, shape: Shape, avoided_host_ids: HostIds = ()) -> HostCapacity | None:
        """Return any host that fits, or None."""
        fitting = [host for host in self.hosts if host.fits(shape)]
        return self._random.choice(fitting) if fitting else None


class RandomDevice(PackPolicy):
    """Any of the devices that fit."""

    def __init__(self, random: Random) -> None:
        """Take where chance comes from."""
        self._random = random

    def device(self, host: HostCapacity, shape: Shape, part_milli: int) -> int:
        """Return any of the devices that can give the part."""
        return self._random.choice(host.part_devices(shape.fgpu_milli))


class FgdPolicy(BalancePolicy):
    """Fragmentation gradient descent as published: a sigmoid of the growth in hundredths, usual requests by count.

    To those without GPU, all free GPU is unusable.
    """

    def __init__(self, mix: Sequence[tuple[Shape, int]], gpu_capacity: int) -> None:
        """Take the usual requests, and the milli-fGPU of a whole GPU."""
        super().__init__(mix, (), gpu_capacity)
        self._fragmentation = Fragmentation(usual_shapes(mix), gpu_capacity)
        self._all = sum(count for _, count in mix)
        self._with_gpu = sum(count for shape, count in mix if shape.fgpu_milli)

    def useless(self, cpu: int, memory_bytes: int, device_free: Sequence[int], traits: frozenset[str]) -> int:
        """Return the fragmentation."""
        unusable = self._with_gpu * self._fragmentation.unusable(cpu, memory_bytes, device_free, traits)
        return unusable + (self._all - self._with_gpu) * self._fragmentation.total_weight * sum(device_free)

    def rank(self, host: HostCapacity, shape: Shape) -> Rank:
        """Return the negated score."""
        growth = self.growth(host, shape) / self._fragmentation.total_weight / self._all / 1000
        return -floor(100 / (1 + exp(growth))), host.index, host.version


def mix_of(trace: Trace) -> list[tuple[Shape, int]]:
    """Return the requests of the trace with their counts."""
    return list(Counter(pod.shape for pod in trace.pods).items())


def named(name: PlacementPolicyName) -> Callable[[Trace, int], GroupCapacity]:
    """Return what makes empty hosts under a policy of the product."""

    def make(trace: Trace, _: int) -> GroupCapacity:
        rules = trace.rules(name)
        return GroupCapacity(trace.empty_hosts(), policy_for(rules, 1000, lambda: rules.mix, trace.hosts))

    return make


GROUPS: Final[Groups] = {
    "random": lambda trace, seed: RandomGroup(trace.empty_hosts(), seed),
    "fgd": lambda trace, _: GroupCapacity(trace.empty_hosts(), FgdPolicy(mix_of(trace), 1000)),
} | {name.value: named(name) for name in PlacementPolicyName}


def measure_list(trace: Trace, seeds: int, sessions: int) -> dict[str, dict[str, By]]:
    """Return by policy what is allocated at each load and how fragmented the rest is, and the mean wait in minutes."""
    measure = Fragmentation(usual_shapes(mix_of(trace)), 1000)
    found: dict[str, dict[str, By]] = {}
    for name, make in GROUPS.items():
        allocated: dict[int, list[float]] = {load: [] for load in LOADS}
        fragmented: dict[int, list[float]] = {load: [] for load in LOADS}
        for seed in range(1, seeds + 1):
            group = make(trace, seed)
            for load, each in zip(LOADS, trace.fill(group, seed, LOADS), strict=True):
                allocated[load].append(each.percent)
                fragmented[load].append(fragmentation_percent(group, measure))
        waits = {
            str(load): round(fmean(mean_wait(trace, make, load, seed, sessions) for seed in range(1, seeds + 1)), 2)
            for load in WAITING_LOADS
        }
        found[name] = {"allocated": means(allocated), "fragmentation": means(fragmented), "waiting": waits}
        print(f"{name}: {found[name]}", flush=True)
    bounds = {load: [bound_percent(trace, seed, load) for seed in range(1, seeds + 1)] for load in LOADS}
    return found | {"bound": {"allocated": means(bounds)}}


def means(by_load: Mapping[int, Sequence[float]]) -> By:
    """Return the mean at each load."""
    return {str(load): round(fmean(values), 2) for load, values in by_load.items()}


def fragmentation_percent(group: GroupCapacity, measure: Fragmentation) -> float:
    """Return what part of the free GPU the usual requests cannot use."""
    free = sum(host.total_free for host in group.hosts)
    unusable = sum(measure.unusable(host.cpu, host.memory_bytes, host.device_free, host.traits) for host in group.hosts)
    return 100 * unusable / measure.total_weight / max(1, free)


def bound_percent(trace: Trace, seed: int, load: int) -> float:
    """Return what no policy can exceed at a load, in percent of all GPU."""
    nowhere = missing_traits(trace.hosts, trace.pods)
    arrived = 0

    def in_load(shape: Shape) -> bool:
        nonlocal arrived
        arrived += shape.fgpu_milli
        return 100 * arrived <= load * trace.capacity

    asked = list(takewhile(in_load, (shape for shape in trace.arrivals(seed) if shape.traits not in nowhere)))
    of_traits = Counter[tuple[str, ...]]()
    for shape in asked:
        of_traits[shape.traits] += shape.fgpu_milli
    by_models = sum(
        min(milli, sum(1000 * len(host.gpus) for host in trace.hosts if host.traits.issuperset(traits)))
        for traits, milli in of_traits.items()
    )
    cores, by_cores = float(sum(host.cpu for host in trace.hosts)), 0.0
    with_gpu = [shape for shape in asked if shape.fgpu_milli]
    for shape in sorted(with_gpu, key=lambda shape: shape.cpu / shape.fgpu_milli):
        part = min(1.0, cores / max(1, shape.cpu))
        by_cores += part * shape.fgpu_milli
        cores -= part * shape.cpu
    return 100 * min(trace.capacity, by_models, by_cores) / trace.capacity


def departing(trace: Trace, load: int, seed: int, sessions: int) -> Iterator[tuple[float, float, Shape]]:
    """Yield minutes of arrival, duration and shape of sessions whose mean demand is `load` percent of all GPU."""
    random, nowhere = Random(seed), missing_traits(trace.hosts, trace.pods)
    shapes = [pod.shape for pod in trace.pods if pod.shape.traits not in nowhere]
    pause = MEAN_MINUTES * fmean(shape.fgpu_milli for shape in shapes) / trace.capacity * 100 / load
    now = 0.0
    for _ in range(sessions):
        now += random.expovariate(1 / pause)
        yield now, MEAN_MINUTES * random.lognormvariate(-0.5, 1), random.choice(shapes)


def mean_wait(trace: Trace, make: Callable[[Trace, int], GroupCapacity], load: int, seed: int, sessions: int) -> float:
    """Return the mean wait in minutes where sessions end, on a part of the hosts; the first quarter warms up.

    At each arrival and end the queue is served in order; what does not fit is passed by.
    """
    trace = Trace(trace.hosts[seed % WAITING_HOSTS :: WAITING_HOSTS], trace.pods)
    group = make(trace, seed)
    jobs = list(departing(trace, load, seed, sessions))
    ends: list[tuple[float, int, HostCapacity, Shares]] = []
    waiting: list[int] = []
    waits: dict[int, float] = {}

    def start(number: int, now: float) -> bool:
        came, minutes, shape = jobs[number]
        host = group.find(shape)
        if host is not None:
            heappush(ends, (now + minutes, number, host, group.take(host, shape)))
            waits[number] = now - came
        return host is not None

    def end() -> None:
        now, number, host, shares = heappop(ends)
        group.give_back(host, jobs[number][2], shares)
        waiting[:] = [each for each in waiting if not host.fits(jobs[each][2]) or not start(each, now)]

    for number, (came, _, _) in enumerate(jobs):
        while ends and ends[0][0] <= came:
            end()
        if not start(number, came):
            waiting.append(number)
    while ends:
        end()
    return fmean(islice((waits[number] for number in sorted(waits)), sessions // 4, None))


def over_lists(by_list: Mapping[str, Mapping[str, Mapping[str, By]]], what: str) -> dict[str, dict[str, By]]:
    """Return by policy and load the mean of the lists, and their worst."""
    policies = {name: [found[name][what] for found in by_list.values()] for name in GROUPS}
    worst: Callable[..., float] = min if what == "allocated" else max
    return {
        "mean": {
            name: {load: round(fmean(one[load] for one in lists), 2) for load in lists[0]}
            for name, lists in policies.items()
        },
        "worst": {
            name: {load: worst(one[load] for one in lists) for load in lists[0]} for name, lists in policies.items()
        },
    }


def main() -> None:
    """Measure every list and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, help="hosts: sn, cpu_milli, memory_mib, gpu, model")
    parser.add_argument("--pods", type=Path, nargs="+", help="lists of sessions: cpu_milli, memory_mib, num_gpu, ...")
    parser.add_argument("--seeds", type=int, default=size(3, 1), help="orders of arrival")
    parser.add_argument("--sessions", type=int, default=size(4000, 200), help="that arrive and end, for the waits")
    options = parser.parse_args()
    if (options.nodes is None) != (options.pods is None):
        parser.error("--nodes and --pods go together")
    traces = {path.stem: Trace(*read_trace(options.nodes, path)) for path in options.pods or ()}
    by_list = {}
    for name, trace in (traces or {"synthetic": synthetic_trace()}).items():
        print(name, flush=True)
        by_list[name] = measure_list(trace, options.seeds, options.sessions)
    others = {what: over_lists(by_list, what) for what in ("fragmentation", "waiting")}
    print(json.dumps(over_lists(by_list, "allocated") | others | {"by_list": by_list}))


if __name__ == "__main__":
    main()
