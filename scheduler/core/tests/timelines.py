"""Random snapshots with running and waiting sessions, for tests in which time passes."""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from hypothesis import settings
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.tests.worlds import NOW, make_host, make_request, random_closeness
from scheduler.core.types import (
    GpuView,
    HostView,
    LimitHolder,
    PlacementPolicyName,
    Rules,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
    in_groups,
)
from scheduler.simulation.simulator import Job

HOUR = timedelta(hours=1)
COMMON = (Shape(1, 1, 500), Shape(2, 2, 1000), Shape(4, 2, 2000))
FOREVER = timedelta(days=10_000)  # run time of unbounded sessions, unless a test says otherwise
SHARES = (0, 250, 500, 500, 750, 1000, 1000, 2000, 2000, 3000)
MIX = tuple((Shape(cpu, 2, fgpu), 1) for cpu in (1, 3, 5) for fgpu in SHARES)  # usual requests

ROOTS = ((), (), (), (1,), (1, 2))  # storage roots that requests need

many = settings(max_examples=300, deadline=None)


def at(hours: float) -> datetime:
    """Return the moment so many hours after all requests joined."""
    return NOW + hours * HOUR


def random_running(random: Random, host: HostView) -> tuple[HostView, list[RunningSession]]:
    """Return `host` with some running sessions, and these; one in six is unbounded."""
    found: list[RunningSession] = []
    for _ in range(random.randint(0, 4)):
        fitting = [gpu for gpu in host.gpus if gpu.free_milli >= 500]
        share = random.choice((0, 500, 1000))
        shares = [(gpu.id, share) for gpu in fitting if gpu.free_milli >= share > 0][:1]
        if host.cpu_free < 2:
            break
        ends_at = None if random.random() < 1 / 6 else at(random.randint(1, 6))
        name = f"r{host.id}-{len(found)}"
        since = at(-random.randint(1, 5))
        found.append(RunningSession(name, random.randint(1, 3), host.id, 2, 2, tuple(shares), since, ends_at))
        held = dict(shares)
        gpus = tuple(GpuView(gpu.id, gpu.capacity_milli, gpu.free_milli - held.get(gpu.id, 0)) for gpu in host.gpus)
        host = replace(host, cpu_free=host.cpu_free - 2, memory_free_bytes=host.memory_free_bytes - 2, gpus=gpus)
    return host, found


def random_waiting(random: Random, name: str, unbounded: float) -> SessionRequest:
    """Return a request that joins now, unbounded with the probability given; every second one has a common shape."""
    duration = None if random.random() < unbounded else random.randint(1, 6) * HOUR
    shape = Shape(random.randint(1, 5), random.randint(1, 3), random.choice(SHARES))
    if random.random() < 1 / 2:
        shape = random.choice(COMMON)
    return make_request(
        name,
        shape.fgpu_milli,
        cpu=shape.cpu,
        memory=shape.memory_bytes,
        owner=random.randint(1, 3),
        group=random.choice((1, 1, 2)),
        roots=random.choice(ROOTS),
        image=random.randint(1, 3),
    )._replace(duration=duration)


def in_several(random: Random, request: SessionRequest, groups: tuple[int, ...] = (1, 2)) -> SessionRequest:
    """Return the request as one that may start in all of `groups`, in the other ones on other storage."""
    others = [group for group in groups if group != request.group_id]
    return in_groups(request, {group: tuple(f"storage:{root}" for root in random.choice(ROOTS)) for group in others})


def random_world(
    random: Random,
    *,
    hosts: int,
    queue: int,
    unbounded: float,
    limited: bool,
    placement_policy: PlacementPolicyName,
    several: float = 0.0,
) -> Snapshot:
    """Return two groups of hosts with running sessions, a queue, and three users, some of them limited.

    `several` is the part of the queue that may start in both groups.
    """
    views, running = [], []
    for host_id in range(1, hosts + 1):
        group = random.choice((1, 1, 2))
        host = make_host(
            host_id,
            [1000] * random.randint(0, 4),
            cpu=12,
            memory=12,
            group=group,
            roots=random.choice(((), (1,), (1, 2), (1, 2, 3))),
        )
        view, found = random_running(random, replace(host, closeness=random_closeness(random, len(host.gpus))))
        views.append(view)
        running += found
    limits = [PolicyLimits(fgpu=random.randint(0, 12) * 250, sessions=random.randint(1, 5)) for _ in range(3)]
    held: dict[int, Amounts] = {1: Amounts(), 2: Amounts(), 3: Amounts()}
    for one in running:
        held[one.owner_id] += Amounts(cpu=one.cpu, memory=one.memory_bytes, fgpu=one.shape.fgpu_milli, sessions=1)
    owners = {
        owner_id: LimitHolder(
            limits=limits[owner_id - 1] if limited and random.random() < 0.5 else PolicyLimits(), used=held[owner_id]
        )
        for owner_id in (1, 2, 3)
    }
    rules = Rules(placement_policy=placement_policy, reservation_delay=random.choice((0, 1, 2, 1000)) * HOUR, mix=MIX)
    ids = range(1, hosts + 1)
    return Snapshot(
        hosts=tuple(views),
        image_hosts={image: frozenset(pk for pk in ids if random.random() < 0.5) for image in (1, 2)},
        queue=tuple(
            in_several(random, request) if random.random() < several else request
            for request in (random_waiting(random, f"s{n}", unbounded) for n in range(queue))
        ),
        owners=owners,
        running=tuple(running),
        rules={1: rules, 2: rules},
    )


def worlds(
    *,
    queue: int = 14,
    unbounded: float = 0.2,
    limited: bool = True,
    several: float = 0.0,
    placement_policy: tuple[PlacementPolicyName, ...] = tuple(PlacementPolicyName),
) -> st.SearchStrategy[Snapshot]:
    """Draw snapshots by a seed; their sizes shrink."""
    return st.builds(
        random_world,
        st.randoms(use_true_random=True),
        hosts=st.integers(1, 5),
        queue=st.integers(1, queue),
        unbounded=st.just(unbounded),
        limited=st.just(limited),
        several=st.just(several),
        placement_policy=st.sampled_from(placement_policy),
    )


def job(request: SessionRequest) -> Job:
    """Return the job that runs to its time limit, or forever without one."""
    return Job(request, request.duration or FOREVER)
