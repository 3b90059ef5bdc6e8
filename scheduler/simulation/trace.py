"""Reader of traces in the format of Alibaba's openb: hosts and sessions as CSV. Pure but for the files.

Unlike the rest of the scheduler, CPU is in milli-cores and memory in MiB, as in the trace; GPU is in thousandths.
"""

import csv
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.types import EPOCH, GpuView, HostView, LimitHolder, SessionRequest, Shape, Snapshot
from scheduler.simulation.simulator import Job

GROUP = 1  # all hosts of a trace are in one group
MINUTE = 60


class Pod(NamedTuple):
    """A session of the trace: its shape, its arrival and its duration in seconds (at least 1).

    `needs_model`: it asked for certain models of GPU, which is not honoured, as all hosts are one group.
    """

    shape: Shape
    arrival_seconds: int
    duration_seconds: int
    needs_model: bool = False


def make_host(number: int, cpu_milli: int, memory_mib: int, gpus: int) -> HostView:
    """Return an empty host of the trace's group."""
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
    )


def read_hosts(path: Path) -> tuple[HostView, ...]:
    """Return the hosts of a CSV with the columns sn, cpu_milli, memory_mib and gpu."""
    with path.open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["sn"])
    return tuple(
        make_host(number, int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]))
        for number, row in enumerate(rows)
    )


def read_pods(path: Path) -> tuple[Pod, ...]:
    """Return the sessions of a CSV: cpu_milli, memory_mib, num_gpu, gpu_milli, creation_time and deletion_time.

    Some traces, such as openb's multigpu lists, have no times: their sessions come a minute apart, and run for ten
    minutes to ten hours, evenly spread.
    """
    with path.open() as file:
        return tuple(_pod(number, row) for number, row in enumerate(csv.DictReader(file)))


def ignored(pods: Iterable[Pod]) -> str:
    """Return a sentence on what of the trace has no effect; empty if nothing."""
    count = sum(pod.needs_model for pod in pods)
    return f"gpu_spec of {count} sessions is ignored: all hosts are one group." if count else ""


def world(hosts: tuple[HostView, ...], pods: tuple[Pod, ...]) -> tuple[Snapshot, list[Job]]:
    """Return the trace as the simulator takes it: one group, one user without limits, no time limits."""
    jobs = []
    for number, pod in enumerate(pods):
        request = SessionRequest(
            f"{number:06}", 1, GROUP, *pod.shape[:3], queued_at=EPOCH + timedelta(seconds=pod.arrival_seconds)
        )
        jobs.append(Job(request, timedelta(seconds=pod.duration_seconds)))
    return Snapshot(hosts=hosts, queue=(), owners={1: LimitHolder(limits=PolicyLimits(), used=Amounts())}), jobs


def _pod(number: int, row: dict[str, str]) -> Pod:
    count = int(row["num_gpu"])
    fgpu = 1000 * count if count > 1 else count * int(row["gpu_milli"])
    shape = Shape(int(row["cpu_milli"]), int(row["memory_mib"]), fgpu)
    needs_model = bool(row.get("gpu_spec"))
    if not row.get("creation_time") or not row.get("deletion_time"):
        return Pod(shape, MINUTE * number, MINUTE * (10 + number * 211 % 591), needs_model)
    arrival = int(row["creation_time"])
    return Pod(shape, arrival, max(1, int(row["deletion_time"]) - arrival), needs_model)
