"""Builders of small snapshots for the tests of placement."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import combinations
from random import Random

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from scheduler.core import placement
from scheduler.core.types import (
    EPOCH,
    Closeness,
    GpuView,
    HostIds,
    HostView,
    LimitHolder,
    Plan,
    SessionRequest,
    Snapshot,
)

NOW = EPOCH
UNLIMITED = LimitHolder(limits=PolicyLimits(), used=Amounts())


def make_host(
    host_id: int,
    free: Sequence[int] = (),
    *,
    capacity: int = 1000,
    cpu: int = 16,
    memory: int = 64 * GIB,
    group: int = 1,
    divides: bool = True,
    roots: Sequence[int] = (),
) -> HostView:
    """Return a host with `cpu` cores free whose devices have `free` milli-fGPU; device i has the id 100 * host + i."""
    gpus = tuple(
        GpuView(id=100 * host_id + i, capacity_milli=capacity, free_milli=amount) for i, amount in enumerate(free)
    )
    return HostView(
        id=host_id,
        name=f"host-{host_id:03}",
        group_id=group,
        cpu=cpu,
        memory_bytes=memory,
        cpu_free=cpu,
        memory_free_bytes=memory,
        gpus=gpus,
        divides=divides,
        traits=frozenset(f"storage:{root}" for root in roots),
    )


def random_closeness(random: Random, devices: int) -> Closeness:
    """Return nothing, or a matrix of few values, so that sets are often equal."""
    if random.random() < 0.4:
        return ()
    pairs = {frozenset(pair): random.choice((0, 10, 400)) for pair in combinations(range(devices), 2)}
    return tuple(tuple(pairs.get(frozenset((one, other)), 0) for other in range(devices)) for one in range(devices))


def make_request(
    request_id: str,
    fgpu: int = 0,
    *,
    cpu: int = 1,
    memory: int = GIB,
    owner: int = 1,
    group: int = 1,
    avoided: HostIds = (),
    roots: Sequence[int] = (),
    image: int = 0,
) -> SessionRequest:
    """Return a small request of group 1 by owner 1."""
    return SessionRequest(
        id=request_id,
        owner_id=owner,
        group_id=group,
        cpu=cpu,
        memory_bytes=memory,
        fgpu_milli=fgpu,
        avoided_host_ids=avoided,
        traits=tuple(f"storage:{root}" for root in roots),
        image_id=image,
    )


def make_snapshot(
    hosts: Sequence[HostView], queue: Sequence[SessionRequest], owners: Mapping[int, LimitHolder] | None = None
) -> Snapshot:
    """Return a snapshot in which each owner not named has no limits."""
    running_sessions = {request.owner_id: UNLIMITED for request in queue}
    return Snapshot(hosts=tuple(hosts), queue=tuple(queue), owners=running_sessions | dict(owners or {}))


def placed(plan: Plan) -> dict[str, tuple[int, tuple[tuple[int, int], ...]]]:
    """Return {session id: (host id, shares)}."""
    return {placement.session_id: (placement.host_id, placement.shares) for placement in plan.placements}


def explanations(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return {session id: (reason, sentence)}."""
    return {waiting.session_id: (waiting.reason.value, waiting.detail) for waiting in plan.waiting}


def plan(snapshot: Snapshot, now: datetime = NOW) -> Plan:
    """Return the plan, by default at the moment when all requests join."""
    return placement.plan(snapshot, now)
