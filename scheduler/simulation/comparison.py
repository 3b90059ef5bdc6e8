"""What other rules, hosts or cuts of a GPU would have changed: two replays of the same sessions, side by side. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Final, NamedTuple

from resources.units import span_text
from scheduler.core.types import GpuView, HostView, PlacementPolicyName, QueueOrder, Rules, Snapshot
from scheduler.simulation.simulator import Job, SimulationResult, simulate

POINTS: Final = 200  # of a curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is other than it was, in every group; None leaves it."""

    placement_policy: PlacementPolicyName | None = None
    queue_order: QueueOrder | None = None
    add_hosts: int = 0  # to each group, like its largest
    fgpu_per_gpu: int | None = None  # requests keep their number of fGPU


class ComparisonRow(NamedTuple):
    """One figure of both replays, in words, and the change in percent where that says something."""

    name: str
    before: str
    after: str
    percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The figures, and curves over time: moments in seconds since 1970, {name: values} before and after."""

    rows: tuple[ComparisonRow, ...]
    moments: tuple[int, ...]
    waiting: tuple[tuple[int, ...], tuple[int, ...]]
    in_use: tuple[tuple[float, ...], tuple[float, ...]]  # percent of all GPU
    summary: str


def compare(world: Snapshot, jobs: Sequence[Job], change: Scenario) -> Comparison:
    """Replay `jobs` on `world` as it is and as `change` makes it."""
    changed = vary(world, change)
    before, after = simulate(world, jobs), simulate(changed, jobs)
    moments = _moments(jobs, before, after)
    return Comparison(
        rows=rows(before, after),
        moments=tuple(int(moment.timestamp()) for moment in moments),
        waiting=(_waiting(jobs, before, moments), _waiting(jobs, after, moments)),
        in_use=(
            _in_use(jobs, before, _capacity(world), moments),
            _in_use(jobs, after, _capacity(changed), moments),
        ),
        summary=summary(change, before, after),
    )


def vary(world: Snapshot, change: Scenario) -> Snapshot:
    """Return the world after the change."""
    hosts = [*world.hosts]
    for group_id in sorted({host.group_id for host in world.hosts}):
        mine = [host for host in world.hosts if host.group_id == group_id]
        largest = max(mine, key=lambda host: (len(host.gpus), host.cpu, host.memory, -host.id))
        hosts += [_copy(largest, len(hosts) + number) for number in range(change.add_hosts)]
    if change.fgpu_per_gpu is not None:
        hosts = [_cut(host, change.fgpu_per_gpu * 1000) for host in hosts]
    groups = {host.group_id: world.rules.get(host.group_id, Rules()) for host in hosts}
    rules = {
        group_id: replace(
            rule,
            placement_policy=change.placement_policy or rule.placement_policy,
            queue_order=change.queue_order or rule.queue_order,
        )
        for group_id, rule in groups.items()
    }
    return replace(world, hosts=tuple(hosts), rules=rules)


def rows(before: SimulationResult, after: SimulationResult) -> tuple[ComparisonRow, ...]:
    """Return the figures of both replays in words."""
    spans = ("mean_wait", "p95_wait", "max_wait")
    found = [
        ComparisonRow(
            name.replace("_", " "),
            span_text(getattr(before, name)),
            span_text(getattr(after, name)),
            percent(getattr(before, name), getattr(after, name)),
        )
        for name in spans
    ]
    for name in ("utilisation", "fragmentation", "fairness"):
        old, new = getattr(before, name), getattr(after, name)
        found.append(ComparisonRow(name, f"{100 * old:.1f} %", f"{100 * new:.1f} %", None))
    found.append(ComparisonRow("never started", str(before.never_started), str(after.never_started), None))
    return tuple(found)


def percent(before: timedelta, after: timedelta) -> int | None:
    """Return the change in percent; None where there was nothing."""
    return round(100 * (after - before) / before) if before else None


def summary(change: Scenario, before: SimulationResult, after: SimulationResult) -> str:
    """Return the change and what it does to the mean wait in a line: "2 more hosts: mean wait -37 %"."""
    parts = [f"{change.add_hosts} more host{'' if change.add_hosts == 1 else 's'}"] * bool(change.add_hosts)
    parts += [str(change.placement_policy.value)] if change.placement_policy else []
    parts += [str(change.queue_order.value)] if change.queue_order else []
    parts += [f"{change.fgpu_per_gpu} fGPU per GPU"] if change.fgpu_per_gpu else []
    by = percent(before.mean_wait, after.mean_wait)
    effect = f"mean wait {span_text(after.mean_wait)}" if by is None else f"mean wait {by:+d} %"
    return f"{', '.join(parts) or 'no change'}: {effect}"


def _copy(host: HostView, number: int) -> HostView:
    """Return an empty host like this one; made-up hosts and GPUs have ids below zero."""
    gpus = tuple(GpuView(-(number * 100 + index), gpu.capacity, gpu.capacity) for index, gpu in enumerate(host.gpus, 1))
    return replace(host, id=-number, name=f"~{number}", gpus=gpus, cpu_free=host.cpu, memory_free=host.memory)


def _cut(host: HostView, capacity: int) -> HostView:
    return replace(host, gpus=tuple(GpuView(gpu.id, capacity, capacity) for gpu in host.gpus))


def _capacity(world: Snapshot) -> int:
    return sum(gpu.capacity for host in world.hosts for gpu in host.gpus)


def _moments(jobs: Sequence[Job], *outcomes: SimulationResult) -> list[datetime]:
    """Return moments at equal distances, from the first arrival to the last end in any of the replays."""
    if not jobs:
        return []
    first = min(job.request.queued_at for job in jobs)
    ends = [at + job.runs_for for outcome in outcomes for job in jobs if (at := outcome.starts.get(job.request.id))]
    step = (max(ends, default=first) - first) / (POINTS - 1)
    return [first + step * number for number in range(POINTS)]


def _waiting(jobs: Iterable[Job], outcome: SimulationResult, moments: Sequence[datetime]) -> tuple[int, ...]:
    steps = [(job.request.queued_at, 1) for job in jobs]
    return tuple(_level([*steps, *((at, -1) for at in outcome.starts.values())], moments))


def _in_use(
    jobs: Iterable[Job], outcome: SimulationResult, capacity: int, moments: Sequence[datetime]
) -> tuple[float, ...]:
    steps = []
    for job in jobs:
        at = outcome.starts.get(job.request.id)
        if at is not None:
            steps += [(at, job.request.fgpu), (at + job.runs_for, -job.request.fgpu)]
    return tuple(round(100 * level / max(1, capacity), 2) for level in _level(steps, moments))


def _level(steps: Iterable[tuple[datetime, int]], moments: Sequence[datetime]) -> list[int]:
    """Return the sum of the steps up to each of the ascending moments."""
    ordered = sorted(steps)
    sums = list(accumulate((by for _, by in ordered), initial=0))
    sorted_free, place = [], 0
    for moment in moments:
        while place < len(ordered) and ordered[place][0] <= moment:
            place += 1
        sorted_free.append(sums[place])
    return sorted_free
