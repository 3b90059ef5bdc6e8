"""A trace of hosts and sessions in the format of Alibaba's openb, and the benchmark's experiments on it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, NamedTuple

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.capacity.group_capacity import GroupCapacity
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.placement_policy import policy_for
from scheduler.core.types import (
    EPOCH,
    HostView,
    LimitHolder,
    PlacementPolicyName,
    Rules,
    SessionRequest,
    Shape,
    Snapshot,
)
from scheduler.simulation.simulator import Job
from scheduler.simulation.trace import Pod, make_host, missing_traits

OWNERS: Final = 20
ARRIVAL_SPEEDUP: Final = 10  # of the closed loop over the trace
TARGET_LOAD: Final = 0.95  # mean demand of the closed loop, as a part of all GPUs


class Allocation(NamedTuple):
    """What of all GPU is allocated, and what was asked for meanwhile of models that no host has, in percent of all."""

    percent: float
    missing_percent: float


@dataclass(frozen=True, slots=True)
class Trace:
    """Hosts and sessions of a trace; their mix of requests stands for a platform's history."""

    hosts: tuple[HostView, ...]
    pods: tuple[Pod, ...]

    @property
    def capacity(self) -> int:
        """Milli-GPU of all hosts."""
        return sum(gpu.capacity_milli for host in self.hosts for gpu in host.gpus)

    def rules(self, placement_policy: PlacementPolicyName) -> Rules:
        """Return rules with this placement policy and the mix of the trace, with the models of GPU."""
        mix = Counter(Shape(*pod.shape[:4]) for pod in self.pods)
        return Rules(placement_policy=placement_policy, mix=tuple(mix.items()))

    def allocation(self, placement_policy: PlacementPolicyName, seed: int, *, in_clusters: bool = False) -> Allocation:
        """Return what is allocated when the arrived demand for models of GPU that exist reaches 100 % of all GPU."""
        rules = self.rules(placement_policy)
        policy = policy_for(rules, 1000, lambda: rules.mix, self.hosts)
        return next(self.fill(GroupCapacity(self.empty_hosts(), policy), seed, (100,), in_clusters=in_clusters))

    def empty_hosts(self) -> list[HostCapacity]:
        """Return the hosts without sessions."""
        return [
            HostCapacity(
                host_id=host.id,
                index=index,
                cpu=host.cpu,
                memory_bytes=host.memory_bytes,
                gpus=host.gpus,
                traits=host.traits,
            )
            for index, host in enumerate(self.hosts)
        ]

    def arrivals(self, seed: int) -> Iterator[Shape]:
        """Yield what sessions ask for: all of them, shuffled, and then random ones without an end."""
        random = Random(seed)
        shapes = [pod.shape for pod in self.pods]
        yield from random.sample(shapes, len(shapes))
        while True:
            yield random.choice(shapes)

    def fill(
        self, group: GroupCapacity, seed: int, loads: Iterable[int], *, in_clusters: bool = False
    ) -> Iterator[Allocation]:
        """Yield what is allocated when the demand for models that exist is each of `loads`, in percent of all GPU.

        The protocol of the FGD paper (Weng et al., ATC 2023): what does not fit is skipped; no session ends.
        `in_clusters`: those with several GPUs are clusters of one GPU a member, which may span hosts.
        """
        nowhere, arriving = missing_traits(self.hosts, self.pods), self.arrivals(seed)
        arrived = allocated = missing = 0
        for load in loads:
            while True:
                shape = next(arriving)
                if shape.traits in nowhere:
                    missing += shape.fgpu_milli
                    continue
                arrived += shape.fgpu_milli
                if 100 * arrived > load * self.capacity:
                    yield Allocation(100 * allocated / self.capacity, 100 * missing / self.capacity)
                    break
                allocated += self._take(group, as_cluster(shape) if in_clusters else shape)

    def _take(self, group: GroupCapacity, shape: Shape) -> int:
        """Place a session if it fits; return its milli-fGPU, or 0."""
        host = None if shape.spans_hosts else group.find(shape)
        parts = group.find_members(shape) if shape.spans_hosts else [(host, shape)] if host else []
        for each, part in parts:
            group.take(each, part)
        return shape.fgpu_milli if parts else 0

    def crowded(self, placement_policy: PlacementPolicyName, limit: int) -> tuple[Snapshot, list[Job]]:
        """Return `limit` sessions and a random part of the hosts, so few that the sessions need nearly all their GPUs.

        Sessions run as long as in the trace and arrive in its order, but ten times as fast: originally, never more than
        a hundredth of the GPUs was in use. The first tenth of the trace, which is sparse, is left out, and so is who
        asks for models of GPU that no host of the trace has.
        """
        nowhere = missing_traits(self.hosts, self.pods)
        in_order = sorted(
            (pod for pod in self.pods if pod.shape.traits not in nowhere), key=lambda pod: pod.arrival_seconds
        )
        chosen = in_order[len(in_order) // 10 :][:limit]
        first, span = (
            chosen[0].arrival_seconds,
            (chosen[-1].arrival_seconds - chosen[0].arrival_seconds) / ARRIVAL_SPEEDUP,
        )
        in_span = (
            min(pod.duration_seconds, span - (pod.arrival_seconds - first) / ARRIVAL_SPEEDUP) * pod.shape.fgpu_milli
            for pod in chosen
        )
        wanted = sum(in_span) / span / TARGET_LOAD
        hosts = list(self.hosts)
        Random(1).shuffle(hosts)
        while sum(gpu.capacity_milli for host in hosts[1:] for gpu in host.gpus) >= wanted:
            hosts.pop(0)
        jobs = []
        for number, pod in enumerate(chosen):
            arrival, duration = (
                timedelta(seconds=(pod.arrival_seconds - first) / ARRIVAL_SPEEDUP),
                timedelta(seconds=pod.duration_seconds),
            )
            request = SessionRequest(
                str(number),
                number % OWNERS,
                1,
                *pod.shape[:3],
                traits=pod.shape.traits,
                queued_at=EPOCH + arrival,
                duration=duration,
            )
            jobs.append(Job(request, duration))
        owners = {owner: LimitHolder(limits=PolicyLimits(), used=Amounts()) for owner in range(OWNERS)}
        return Snapshot(hosts=tuple(hosts), queue=(), owners=owners, rules={1: self.rules(placement_policy)}), jobs


def as_cluster(shape: Shape) -> Shape:
    """Return the shape of several whole GPUs as one of a cluster that may span hosts, with a GPU for each member."""
    members, part = divmod(shape.fgpu_milli, 1000)
    if members < 2 or part:
        return shape
    cpu, memory = (-(-amount // members) * members for amount in shape[:2])
    return Shape(cpu, memory, shape.fgpu_milli, shape.traits, members, mode="any")


def synthetic_trace() -> Trace:
    """Return a small trace of the same kind: hosts rich and poor in cores, parts of GPUs that leave unusable rests."""
    random = Random(1)
    kinds = ((96_000, 8), (96_000, 8), (104_000, 2), (16_000, 2), (32_000, 4))
    hosts = []
    for number in range(100):
        cpu, gpus = random.choice(kinds)
        hosts.append(make_host(number, cpu, 4 * cpu, gpus))
    pods = []
    for number in range(800):
        fgpu = random.choice((0, 230, 320, 470, 470, 650, 810, 810, 1000, 1000, 1000, 1000, 2000, 8000))
        cpu = random.choice((3_000, 8_000, 11_000, 12_000)) * max(1, fgpu // 1000)
        came = number * 60 + random.randint(0, 600)
        pods.append(Pod(Shape(cpu, 3 * cpu, fgpu), came, random.randint(600, 36_000)))
    return Trace(tuple(hosts), tuple(pods))
