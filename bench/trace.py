"""A trace of sessions and hosts, as Alibaba's openb trace has them, and the experiments of the benchmark on it."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.group_capacity import GroupCapacity
from scheduler.core.host_capacity import HostCapacity
from scheduler.core.placement_policy import policy_for
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
from scheduler.simulation.trace import Pod, make_host, read_hosts, read_pods

OWNERS: Final = 20
DENSER: Final = 10  # times as dense as in the trace do sessions come in the closed loop
LOAD: Final = 0.95  # part of the hosts' GPUs that they want in the mean


@dataclass(frozen=True, slots=True)
class Trace:
    """Hosts and sessions, and the mix of requests: what a platform would have learned from its history."""

    hosts: tuple[HostView, ...]
    pods: tuple[Pod, ...]

    @property
    def capacity(self) -> int:
        """Milli-GPU of all hosts."""
        return sum(gpu.capacity for host in self.hosts for gpu in host.gpus)

    def rules(self, placement_policy: PlacementPolicyName) -> Rules:
        """Return rules for a group that places by `where` and knows the mix."""
        return Rules(placement_policy=placement_policy, mix=tuple(Counter(pod.shape for pod in self.pods).items()))

    def allocation(self, placement_policy: PlacementPolicyName, seed: int) -> float:
        """Return the percentage of all GPU that is allocated when the arrived demand reaches 100 % of it.

        The protocol of the FGD paper (USENIX ATC 2023): sessions arrive shuffled, repeated at random until there are
        enough; what does not fit is skipped; nobody leaves.
        """
        random = Random(seed)
        arrivals = [pod.shape for pod in self.pods]
        random.shuffle(arrivals)
        hosts = [
            HostCapacity(host_id=host.id, index=index, cpu=host.cpu, memory=host.memory, gpus=host.gpus)
            for index, host in enumerate(self.hosts)
        ]
        rules = self.rules(placement_policy)
        group = GroupCapacity(hosts, policy_for(rules, 1000, lambda: rules.mix))
        arrived = allocated = place = 0
        while True:
            if place == len(arrivals):
                arrivals.append(random.choice(self.pods).shape)
            shape = arrivals[place]
            arrived, place = arrived + shape.fgpu, place + 1
            if arrived > self.capacity:
                return 100 * allocated / self.capacity
            host = group.find(shape)
            if host is not None:
                group.take(host, shape)
                allocated += shape.fgpu

    def crowded(self, placement_policy: PlacementPolicyName, limit: int) -> tuple[Snapshot, list[Job]]:
        """Return `limit` sessions and a random part of the hosts, so few that the sessions want nearly all their GPUs.

        Sessions last as long as in the trace, and come in its order, but ten times as densely: as they came, there were
        never more than a hundredth of its GPUs in use. The first tenth, from before the trace was dense, is left out.
        """
        in_order = sorted(self.pods, key=lambda pod: pod.came)
        chosen = in_order[len(in_order) // 10 :][:limit]
        first, span = chosen[0].came, (chosen[-1].came - chosen[0].came) / DENSER
        in_span = (min(pod.lasts, span - (pod.came - first) / DENSER) * pod.shape.fgpu for pod in chosen)
        wanted = sum(in_span) / span / LOAD
        hosts = list(self.hosts)
        Random(1).shuffle(hosts)
        while sum(gpu.capacity for host in hosts[1:] for gpu in host.gpus) >= wanted:
            hosts.pop(0)
        jobs = []
        for number, pod in enumerate(chosen):
            came, lasts = timedelta(seconds=(pod.came - first) / DENSER), timedelta(seconds=pod.lasts)
            request = SessionRequest(
                str(number), number % OWNERS, 1, *pod.shape, queued_at=EPOCH + came, duration=lasts
            )
            jobs.append(Job(request, lasts))
        owners = {owner: LimitHolder(limits=PolicyLimits(), used=Amounts()) for owner in range(OWNERS)}
        return Snapshot(hosts=tuple(hosts), queue=(), owners=owners, rules={1: self.rules(placement_policy)}), jobs


def read_trace(nodes: Path, pods: Path) -> Trace:
    """Return the trace in two CSV files with the columns of openb's."""
    return Trace(read_hosts(nodes), read_pods(pods))


def synthetic_trace() -> Trace:
    """Return a small trace of the same kind: hosts rich and poor in cores, shares that leave parts nobody wants."""
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
