"""Reader of traces in the format of Alibaba's openb: hosts and sessions as CSV. Pure but for the files.

Unlike the rest of the scheduler, CPU is in milli-cores and memory in MiB, as in the trace; GPU is in thousandths.
"""

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.types import (
    EPOCH,
    GPU_MODEL_TRAIT,
    GpuView,
    HostView,
    LimitHolder,
    SessionRequest,
    Shape,
    Snapshot,
    Traits,
)
from scheduler.simulation.simulator import Job

GROUP = 1  # all hosts of a trace are in one group
MINUTE = 60


class Pod(NamedTuple):
    """A session of the trace: its shape, its arrival and its duration in seconds (at least 1).

    The models of GPU that it accepts are one trait of the shape, `gpu_model:T4|V100`, which hosts of either have.
    """

    shape: Shape
    arrival_seconds: int
    duration_seconds: int


def make_host(number: int, cpu_milli: int, memory_mib: int, gpus: int, model: str = "") -> HostView:
    """Return an empty host of the trace's group, whose GPUs are of the model."""
    views = tuple(GpuView(number * 8 + index, 1000, 1000) for index in range(gpus))
    return HostView(
        id=number,
        name=f"{number:05}",
        group_id=GROUP,
        cpu=cpu_milli,
        memory_bytes=memory_mib,
        cpu_free=cpu_milli,
        memory_free_bytes=memory_mib,
        gpus=views,
        traits=frozenset(_model_traits(model)),
    )


def read_trace(nodes: Path, pods: Path) -> tuple[tuple[HostView, ...], tuple[Pod, ...]]:
    """Return the hosts and sessions of two CSV; a host has a trait for each list of models that names its own."""
    sessions = read_pods(pods)
    lists = {trait for pod in sessions for trait in pod.shape.traits}
    hosts = read_hosts(nodes)
    return tuple(replace(host, traits=host.traits | _lists_with(host.traits, lists)) for host in hosts), sessions


def read_hosts(path: Path) -> tuple[HostView, ...]:
    """Return the hosts of a CSV with the columns sn, cpu_milli, memory_mib and gpu, and model where it is known."""
    with path.open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["sn"])
    return tuple(
        make_host(number, int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row.get("model") or "")
        for number, row in enumerate(rows)
    )


def read_pods(path: Path) -> tuple[Pod, ...]:
    """Return the sessions of a CSV: cpu_milli, memory_mib, num_gpu, gpu_milli, creation_time and deletion_time.

    `gpu_spec`, where it is there, has the accepted models of GPU with `|` between them; empty: any.

    Some traces, such as openb's multigpu lists, have no times: their sessions come a minute apart, and run for ten
    minutes to ten hours, evenly spread.
    """
    with path.open() as file:
        return tuple(_pod(number, row) for number, row in enumerate(csv.DictReader(file)))


def missing_traits(hosts: Iterable[HostView], pods: Iterable[Pod]) -> frozenset[Traits]:
    """Return the traits of sessions that none of the hosts has: these sessions can never start."""
    offered = {host.traits for host in hosts}
    asked = {pod.shape.traits for pod in pods}
    return frozenset(traits for traits in asked if not any(mine.issuperset(traits) for mine in offered))


def missing_models(hosts: Iterable[HostView], pods: Iterable[Pod]) -> dict[str, int]:
    """Return how many sessions ask for GPUs that none of the hosts has, by their list of models."""
    pods = tuple(pods)
    missing = missing_traits(hosts, pods)
    counts = Counter(pod.shape.traits for pod in pods if pod.shape.traits in missing)
    return {trait.removeprefix(f"{GPU_MODEL_TRAIT}:"): counts[(trait,)] for (trait,) in sorted(counts)}


def missing_text(hosts: Iterable[HostView], pods: Iterable[Pod]) -> str:
    """Return a sentence on the sessions that can never start, as no host has their GPU; empty if there are none."""
    found = missing_models(hosts, pods)
    if not found:
        return ""
    return f"No host has the model of GPU that {sum(found.values())} sessions ask for: {', '.join(found)}."


def world(hosts: tuple[HostView, ...], pods: tuple[Pod, ...]) -> tuple[Snapshot, list[Job]]:
    """Return the trace as the simulator takes it: one group, one user without limits, no time limits."""
    jobs = []
    for number, pod in enumerate(pods):
        at = EPOCH + timedelta(seconds=pod.arrival_seconds)
        traits = pod.shape.traits
        request = SessionRequest(f"{number:06}", 1, GROUP, *pod.shape[:3], traits=traits, queued_at=at)
        jobs.append(Job(request, timedelta(seconds=pod.duration_seconds)))
    return Snapshot(hosts=hosts, queue=(), owners={1: LimitHolder(limits=PolicyLimits(), used=Amounts())}), jobs


def _pod(number: int, row: dict[str, str]) -> Pod:
    count = int(row["num_gpu"])
    fgpu = 1000 * count if count > 1 else count * int(row["gpu_milli"])
    shape = Shape(int(row["cpu_milli"]), int(row["memory_mib"]), fgpu, _model_traits(row.get("gpu_spec") or ""))
    if not row.get("creation_time") or not row.get("deletion_time"):
        return Pod(shape, MINUTE * number, MINUTE * (10 + number * 211 % 591))
    arrival = int(row["creation_time"])
    return Pod(shape, arrival, max(1, int(row["deletion_time"]) - arrival))


def _model_traits(spec: str) -> Traits:
    """Return the trait of a list of models as in `gpu_spec`, whatever their order; none for an empty list."""
    models = sorted(set(filter(None, spec.split("|"))))
    return (f"{GPU_MODEL_TRAIT}:{'|'.join(models)}",) if models else ()


def _lists_with(own: Iterable[str], lists: Iterable[str]) -> set[str]:
    """Return those of the traits of lists of models that name the model of one of the host's own traits."""
    models = {trait.removeprefix(f"{GPU_MODEL_TRAIT}:") for trait in own}
    return {trait for trait in lists if not models.isdisjoint(trait.removeprefix(f"{GPU_MODEL_TRAIT}:").split("|"))}
