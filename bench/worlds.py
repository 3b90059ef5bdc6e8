"""Large synthetic snapshots for the scheduler's benchmark, identical in every run."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import get_args

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from scheduler.core.placement import plan
from scheduler.core.types import (
    EPOCH,
    ClusterMode,
    GpuView,
    HostView,
    LimitHolder,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
)

OWNERS = 100
LIMITS = tuple(timedelta(minutes=minutes) for minutes in (10, 30, 60, 90, 120, 240, 480, 1440, 2880))
SHARES = (0, 100, 150, 200, 250, 300, 350, 400, 500, 500, 600, 700, 750, 800, 1000, 1000, 1000, 2000, 4000, 8000)


def shapes(random: Random, count: int = 200) -> list[Shape]:
    """Return request shapes: mostly parts of a GPU, some with up to 8 whole ones, some without GPU."""
    mix = []
    for _ in range(count):
        fgpu = random.choice(SHARES)
        gpus = max(1, fgpu // 1000)
        mix.append(Shape(random.randint(1, 8) * gpus, random.choice((2, 4, 8, 16, 24, 32)) * GIB * gpus, fgpu))
    return mix


def empty_host(number: int) -> HostView:
    """Return a host of 8 GPUs, 128 cores and 1 TiB."""
    gpus = tuple(GpuView(number * 8 + index, 1000, 1000) for index in range(8))
    return HostView(
        id=number,
        name=f"host-{number:05}",
        group_id=1,
        cpu=128,
        memory_bytes=1024 * GIB,
        cpu_free=128,
        memory_free_bytes=1024 * GIB,
        gpus=gpus,
    )


def big_world(hosts: int, waiting: int) -> Snapshot:
    """Return empty hosts and a queue of 200 shapes by 100 users, some of whom reach their limits."""
    random = Random(1)
    mix = shapes(random)
    queue = tuple(
        SessionRequest(f"s{number:05}", random.randint(1, OWNERS), 1, *random.choice(mix)[:3], queued_at=EPOCH)
        for number in range(waiting)
    )
    limits = PolicyLimits(cpu=2000, memory=8 * 1024 * GIB, fgpu=100_000, sessions=90)
    return Snapshot(
        hosts=tuple(empty_host(number) for number in range(1, hosts + 1)),
        queue=queue,
        owners={owner: LimitHolder(limits=limits, used=Amounts()) for owner in range(1, OWNERS + 1)},
    )


def after_release(hosts: int, waiting: int) -> Snapshot:
    """Return hosts as full as they get, less one session that has just ended, and a queue that did not fit."""
    world = big_world(hosts, 2 * waiting)
    unlimited = {owner: LimitHolder(limits=PolicyLimits(), used=Amounts()) for owner in world.owners}
    world = replace(world, owners=unlimited)
    result = plan(world, EPOCH, look_ahead=0)
    asked = {request.id: request for request in world.queue}
    running: list[RunningSession] = []
    held: dict[int, list[RunningSession]] = {}
    for number, placement in enumerate(result.placements[1:]):
        request = asked[placement.session_id]
        end = EPOCH + timedelta(minutes=1 + number % 1440)
        one = RunningSession(
            request.id, request.owner_id, placement.host_id, *request.shape[:2], placement.shares, EPOCH, end
        )
        running.append(one)
        held.setdefault(one.host_id, []).append(one)
    views = tuple(_with(host, held.get(host.id, ())) for host in world.hosts)
    left = [asked[entry.session_id] for entry in result.waiting]
    backlog = tuple(left[number % len(left)]._replace(id=f"w{number:05}") for number in range(waiting))
    return replace(world, hosts=views, queue=backlog, running=tuple(running))


def with_limits(world: Snapshot) -> Snapshot:
    """Return `world` with one of nine time limits for each waiting request."""
    random = Random(3)
    return replace(world, queue=tuple(request._replace(duration=random.choice(LIMITS)) for request in world.queue))


def with_clusters(world: Snapshot, part: float = 0.2) -> Snapshot:
    """Return `world` with a part of its requests for clusters of 2 to 64 members, each of the size of the request."""
    random = Random(5)
    queue = [
        _cluster(request, random.randint(2, 64), random.choice(get_args(ClusterMode)))
        if random.random() < part
        else request
        for request in world.queue
    ]
    return replace(world, queue=tuple(queue))


def _cluster(request: SessionRequest, members: int, mode: ClusterMode) -> SessionRequest:
    return request._replace(
        cpu=members * request.cpu,
        memory_bytes=members * request.memory_bytes,
        fgpu_milli=members * request.fgpu_milli,
        members=members,
        mode=mode,
        member_ids=(request.id, *(f"{request.id}.{rank}" for rank in range(1, members))),
    )


def _with(host: HostView, running: Sequence[RunningSession]) -> HostView:
    """Return `host` less what `running` holds."""
    taken: dict[int, int] = {}
    for one in running:
        for gpu_id, share in one.shares:
            taken[gpu_id] = taken.get(gpu_id, 0) + share
    return replace(
        host,
        cpu_free=host.cpu - sum(one.cpu for one in running),
        memory_free_bytes=host.memory_bytes - sum(one.memory_bytes for one in running),
        gpus=tuple(gpu._replace(free_milli=gpu.free_milli - taken.get(gpu.id, 0)) for gpu in host.gpus),
    )
