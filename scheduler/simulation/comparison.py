"""What-if comparison: two replays of the same sessions, as it was and under a changed scenario. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Final, NamedTuple

from resources.amounts.units import span_text
from scheduler.core.types import GpuView, HostView, PlacementPolicyName, QueueOrder, Rules, Snapshot
from scheduler.simulation.simulator import Job, SimulationResult, simulate

CURVE_POINTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Changes to every group; None leaves a setting as it is."""

    placement_policy: PlacementPolicyName | None = None
    queue_order: QueueOrder | None = None
    add_hosts: int = 0  # to each group, each like its largest host
    fgpu_per_gpu: int | None = None  # requests keep their number of fGPU


class ComparisonRow(NamedTuple):
    """One figure of both replays as text, and its change in percent where that is meaningful."""

    name: str
    before: str
    after: str
    percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Figures of both replays, and curves over time, each (before, after); `moments` are in seconds since 1970."""

    rows: tuple[ComparisonRow, ...]
    moments: tuple[int, ...]
    waiting: tuple[tuple[int, ...], tuple[int, ...]]
    in_use: tuple[tuple[float, ...], tuple[float, ...]]  # percent of all GPU
    summary: str


def compare(world: Snapshot, jobs: Sequence[Job], scenario: Scenario) -> Comparison:
    """Replay `jobs` on `world` as it is and as `scenario` changes it."""
    changed = vary(world, scenario)
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
        summary=summary(scenario, before, after),
    )


def vary(world: Snapshot, scenario: Scenario) -> Snapshot:
    """Return `world` under the scenario."""
    hosts = [*world.hosts]
    for group_id in sorted({host.group_id for host in world.hosts}):
        mine = [host for host in world.hosts if host.group_id == group_id]
        largest = max(mine, key=lambda host: (len(host.gpus), host.cpu, host.memory_bytes, -host.id))
        hosts += [_copy(largest, len(hosts) + number) for number in range(scenario.add_hosts)]
    if scenario.fgpu_per_gpu is not None:
        hosts = [_with_gpu_capacity(host, scenario.fgpu_per_gpu * 1000) for host in hosts]
    groups = {host.group_id: world.rules.get(host.group_id, Rules()) for host in hosts}
    rules = {
        group_id: replace(
            rule,
            placement_policy=scenario.placement_policy or rule.placement_policy,
            queue_order=scenario.queue_order or rule.queue_order,
        )
        for group_id, rule in groups.items()
    }
    return replace(world, hosts=tuple(hosts), rules=rules)


def rows(before: SimulationResult, after: SimulationResult) -> tuple[ComparisonRow, ...]:
    """Return the figures of both replays."""
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
    """Return the change in percent; None if `before` is zero."""
    return round(100 * (after - before) / before) if before else None


def summary(scenario: Scenario, before: SimulationResult, after: SimulationResult) -> str:
    """Return the scenario and its effect on the mean wait in one line: "2 more hosts: mean wait -37 %"."""
    parts = [f"{scenario.add_hosts} more host{'' if scenario.add_hosts == 1 else 's'}"] * bool(scenario.add_hosts)
    parts += [str(scenario.placement_policy.value)] if scenario.placement_policy else []
    parts += [str(scenario.queue_order.value)] if scenario.queue_order else []
    parts += [f"{scenario.fgpu_per_gpu} fGPU per GPU"] if scenario.fgpu_per_gpu else []
    by = percent(before.mean_wait, after.mean_wait)
    effect = f"mean wait {span_text(after.mean_wait)}" if by is None else f"mean wait {by:+d} %"
    return f"{', '.join(parts) or 'no change'}: {effect}"


def _copy(host: HostView, number: int) -> HostView:
    """Return an empty host of the same size; added hosts and GPUs have negative ids."""
    gpus = tuple(
        GpuView(-(number * 100 + index), gpu.capacity_milli, gpu.capacity_milli)
        for index, gpu in enumerate(host.gpus, 1)
    )
    return replace(
        host, id=-number, name=f"~{number}", gpus=gpus, cpu_free=host.cpu, memory_free_bytes=host.memory_bytes
    )


def _with_gpu_capacity(host: HostView, capacity_milli: int) -> HostView:
    return replace(host, gpus=tuple(GpuView(gpu.id, capacity_milli, capacity_milli) for gpu in host.gpus))


def _capacity(world: Snapshot) -> int:
    return sum(gpu.capacity_milli for host in world.hosts for gpu in host.gpus)


def _moments(jobs: Sequence[Job], *outcomes: SimulationResult) -> list[datetime]:
    """Return equidistant moments from the first arrival to the last end in any of the replays."""
    if not jobs:
        return []
    first = min(job.request.queued_at for job in jobs)
    ends = [at + job.runs_for for outcome in outcomes for job in jobs if (at := outcome.starts.get(job.request.id))]
    step = (max(ends, default=first) - first) / (CURVE_POINTS - 1)
    return [first + step * number for number in range(CURVE_POINTS)]


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
            steps += [(at, job.request.fgpu_milli), (at + job.runs_for, -job.request.fgpu_milli)]
    return tuple(round(100 * level / max(1, capacity), 2) for level in _level(steps, moments))


def _level(steps: Iterable[tuple[datetime, int]], moments: Sequence[datetime]) -> list[int]:
    """Return the sum of the steps (moment, amount) up to each of the ascending moments."""
    ordered = sorted(steps)
    sums = list(accumulate((by for _, by in ordered), initial=0))
    levels, position = [], 0
    for moment in moments:
        while position < len(ordered) and ordered[position][0] <= moment:
            position += 1
        levels.append(sums[position])
    return levels
