"""Random worlds of a few hosts, users and sessions, in which every rule has a say; and what happens in them."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Final, get_args

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.tests.worlds import random_closeness
from scheduler.core.types import (
    EPOCH,
    Association,
    ClusterMode,
    DecayedUsage,
    GpuChoice,
    GpuView,
    HostView,
    LimitHolder,
    PlacementPolicyName,
    QueueOrder,
    Rules,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
    by_gpu_memory,
    entries_of,
    gpu_size_trait,
    in_groups,
)

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
START: Final = EPOCH + 1000 * HOUR
SIZES: Final = (8, 16, 24, 40, 80)  # of GPUs
SHARES: Final = (0, 250, 500, 500, 750, 1000, 1000, 1500, 2000, 2500)
TRAITS: Final = ("gpu_model:a", "storage:1", "storage:2")
# Usual requests: their parts of all, and their mean amounts, are binary fractions, so that scores are exact.
WHOLE: Final = 2  # what a core of a session takes of a host where CPU is not overcommitted
MIX: Final = ((Shape(4, 2, 500), 10), (Shape(4, 4, 1000), 5), (Shape(4, 1, 2000), 5), (Shape(18, 9, 250), 1))
GPU_WEIGHTS: Final = (1000, 1000, 1000, 2500, 10)
USERS: Final = (1, 2, 3)
PROJECTS: Final = (7, 8)


@dataclass
class World:
    """Hosts, sessions that run and wait, and users, at a time."""

    random: Random
    hosts: list[HostView]
    rules: dict[int, Rules]
    limits: dict[int, PolicyLimits]
    project_limits: dict[int, PolicyLimits]
    weights: dict[Association, int]
    image_hosts: dict[int, frozenset[int]]
    unbounded: float  # part of the sessions that run without a time limit
    clusters: float  # part of the requests that are for several members
    by_memory: float  # part of the requests that name GPU memory
    now: datetime = START
    used: dict[tuple[int, Association], DecayedUsage] = field(default_factory=dict)
    running: dict[str, RunningSession] = field(default_factory=dict)
    waiting: dict[str, SessionRequest] = field(default_factory=dict)
    count: int = 0

    def snapshot(self) -> Snapshot:
        """Return the state as it would be read."""
        held: dict[int, Amounts] = defaultdict(Amounts)
        in_project: dict[int | None, Amounts] = defaultdict(Amounts)
        for one in self.running.values():
            more = Amounts(cpu=one.cpu, memory=one.memory_bytes, fgpu=one.shape.fgpu_milli, sessions=1)
            held[one.owner_id] += more
            in_project[one.project_id] += more
        return Snapshot(
            hosts=tuple(self._with_free(host) for host in self.hosts),
            queue=tuple(sorted(self.waiting.values(), key=lambda it: (-it.priority, it.queued_at, it.id))),
            owners={user: LimitHolder(limits=limits, used=held[user]) for user, limits in self.limits.items()},
            projects={
                it: LimitHolder(limits=limits, used=in_project[it]) for it, limits in self.project_limits.items()
            },
            running=tuple(self.running.values()),
            rules=self.rules,
            image_hosts=self.image_hosts,
            used=dict(self.used),
            weights=self.weights,
        )

    def _with_free(self, host: HostView) -> HostView:
        """Return a host less what its sessions hold; below zero where some is held in advance."""
        here = [one for one in self.running.values() if one.host_id == host.id]
        taken: dict[int, int] = defaultdict(int)
        for one in here:
            for gpu_id, milli in one.shares:
                taken[gpu_id] += milli
        return replace(
            host,
            cpu_free=host.cpu - sum(one.shape.cpu for one in here),
            memory_free_bytes=host.memory_bytes - sum(one.memory_bytes for one in here),
            gpus=tuple(gpu._replace(free_milli=gpu.capacity_milli - taken[gpu.id]) for gpu in host.gpus),
        )

    def submit(self) -> SessionRequest:
        """Add a request that waits."""
        random = self.random
        self.count += 1
        groups = sorted({*self.rules, 1})
        shape = Shape(random.randint(1, 4), random.randint(1, 3), random.choice(SHARES))
        if random.random() < 0.15:
            shape = Shape(random.randint(1, 14), random.randint(1, 14), random.choice((0, 3000, 4000)))
        request = SessionRequest(
            id=f"s{self.count}",
            owner_id=random.choice(USERS),
            group_id=random.choice(groups),
            cpu=shape.cpu,
            memory_bytes=shape.memory_bytes,
            fgpu_milli=shape.fgpu_milli,
            avoided_host_ids=random.choice(((), (), (), (1,), (2, 1), (3,))),
            traits=random.choice(((), (), (), (), (), ("storage:1",), ("gpu_model:a",), ("gpu_model:a", "storage:2"))),
            priority=random.choice((0, 0, 0, 1, 2)),
            queued_at=self.now - random.choice((0, 0, 1, 20, 100, 300, 1800)) * MINUTE,
            duration=random.choice((None, HOUR, HOUR, 2 * HOUR, 4 * HOUR, 30 * MINUTE)),
            project_id=random.choice((None, None, *PROJECTS)),
            image_id=random.randint(0, 2),
            charge_percent=random.choice((100, 100, 50)),
            is_preemptible=random.random() < 0.2,
            predicted=random.choice((None, 10 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR)),
        )
        if random.random() < self.clusters:
            each = Shape(random.randint(1, 3), random.randint(1, 2), random.choice((0, 250, 250, 500, 750, 1000, 2000)))
            request = cluster_of(random, request, random.randint(2, 4), each)
            if random.random() < 0.3:
                request = with_main(random, request, each)
            if random.random() < 0.2:
                mine = [host.id for host in self.hosts if host.group_id == request.group_id] or [1]
                request = request._replace(mode="any", pins=tuple(random.choices(mine, k=request.members)))
        core_milli = {group: self.rules[group].core_milli if group in self.rules else 1 for group in groups}
        request = request._replace(core_milli=core_milli[request.group_id])
        if random.random() < 0.2:
            others = [group for group in groups if group != request.group_id]
            request = in_groups(request, {group: random.choice(((), ("storage:2",))) for group in others}, core_milli)
        if random.random() < self.by_memory:
            request = self._by_memory(request)
        self.waiting[request.id] = request
        return request

    def _by_memory(self, request: SessionRequest) -> SessionRequest:
        """Return the request as one by GPU memory, on the GPUs on which that fits."""
        wanted, least = self.random.choice((2, 4, 8, 12, 16, 20, 30, 40, 60, 80)), self.random.choice((0, 0, 0, 250))
        choices = {
            group: [
                GpuChoice(
                    max(least, 50 * -(-wanted * 20 // size)) if divides else 1000, gpu_size_trait(size, divides=divides)
                )
                for size, divides in sorted({size_of(it) for it in self.hosts if it.group_id == group and it.gpus})
                if size >= wanted
            ]
            for group in {entry.group_id for entry in entries_of([request])}
        }
        gpus = request.shape.gpu_members if request.members > 1 and request.fgpu_milli else request.members
        main = request.main and (*request.main[:2], int(request.main[2] > 0 or not request.fgpu_milli))
        if main and not request.fgpu_milli:
            gpus = request.members
        request = request._replace(fgpu_milli=gpus, main=main)
        request = request._replace(
            alternatives=tuple(it._replace(fgpu_milli=gpus, main=main) for it in request.alternatives)
        )
        return by_gpu_memory(request, choices) if all(choices.values()) else self._without(request)

    @staticmethod
    def _without(request: SessionRequest) -> SessionRequest:
        """Return the request without GPU."""
        main = request.main and (*request.main[:2], 0)
        others = tuple(it._replace(fgpu_milli=0, main=main) for it in request.alternatives)
        return request._replace(fgpu_milli=0, main=main, alternatives=others)

    def submit_first(self, devices: int) -> None:
        """Add a request for so many whole GPUs, or else for many cores, that has waited for long."""
        request = self.submit()._replace(
            cpu=1 if devices else 8,
            memory_bytes=1,
            fgpu_milli=1000 * devices,
            traits=(),
            priority=2,
            queued_at=self.now - 10 * HOUR,
            is_preemptible=False,
            alternatives=(),
            members=1,
            member_ids=(),
            pins=(),
            main=None,
        )
        self.waiting[request.id] = request

    def submit_cluster_first(self) -> None:
        """Add a request for a cluster that may span hosts and has waited for long."""
        random, request = self.random, self.submit()
        mode: ClusterMode = random.choice(("any", "spread"))
        each = Shape(random.randint(1, 4), 1, 500)
        hosts = sum(host.group_id == request.group_id for host in self.hosts)
        members = random.randint(2, max(2, hosts if mode == "spread" else 3 * hosts))
        each = each._replace(fgpu_milli=random.choice((0, 500, 1000)))
        request = cluster_of(random, request, members, each)._replace(mode=mode, shares_gpus=False, pins=(), main=None)
        if random.random() < 0.3:
            request = with_main(random, request, each)
        request = request._replace(traits=(), priority=2, queued_at=self.now - 10 * HOUR, alternatives=())
        self.waiting[request.id] = request

    def run(self, host: HostView) -> RunningSession | None:
        """Add a session that runs on a host, if there is room; now and then whether or not, held in advance."""
        random, host = self.random, self._with_free(host)
        self.count += 1
        is_held = random.random() < 0.05
        rooms = [gpu for gpu in host.gpus if gpu.free_milli > 0 or is_held]
        shares: list[tuple[int, int]] = []
        for gpu in random.sample(rooms, min(len(rooms), random.choice((0, 1, 1, 2)))):
            whole = gpu.free_milli == gpu.capacity_milli and host.divides is False
            milli = gpu.capacity_milli if whole or (shares and not is_held) else random.choice((250, 500, 750, 1000))
            if milli <= gpu.free_milli or is_held:
                shares.append((gpu.id, milli))
        cpu, memory, core_milli = random.randint(0, 3), random.randint(0, 3), random.choice((WHOLE, WHOLE, 1))
        if not is_held and (host.cpu_free < cpu * core_milli or host.memory_free_bytes < memory):
            return None
        session = RunningSession(
            session_id=f"r{self.count}",
            owner_id=random.choice(USERS),
            host_id=host.id,
            cpu=cpu,
            memory_bytes=memory,
            shares=tuple(sorted(shares)),
            started_at=self.now - random.randint(0, 6) * HOUR,
            ends_at=self.now + random.choice((1, 2, 2, 3, 4, 6)) * HOUR / 2,
            project_id=random.choice((None, None, *PROJECTS)),
            charge_percent=random.choice((100, 100, 50)),
            is_preemptible=random.random() < 0.4,
            core_milli=core_milli,
            gpu_weight=700 if cpu == 3 else None,
        )
        if random.random() < self.unbounded:
            session = session._replace(ends_at=None)
        elif random.random() < 0.1:  # overdue, or by more than the grace
            session = session._replace(ends_at=self.now - random.choice((1, 2, 3, 60)) * MINUTE)
        if session.is_preemptible and random.random() < 0.2:
            session = session._replace(is_preemptible=False, preempted_for="other")
        self.running[session.session_id] = session
        return session


def cluster_of(random: Random, request: SessionRequest, members: int, each: Shape) -> SessionRequest:
    """Return the request as one for a cluster of so many members of a shape."""
    return request._replace(
        cpu=members * each.cpu,
        memory_bytes=members * each.memory_bytes,
        fgpu_milli=members * each.fgpu_milli,
        members=members,
        shares_gpus=random.random() < 0.4,
        mode=random.choice(get_args(ClusterMode)),
        member_ids=(request.id, *(f"{request.id}.{rank}" for rank in range(1, members))),
        is_preemptible=False,
    )


def with_main(random: Random, request: SessionRequest, each: Shape) -> SessionRequest:
    """Return the request with a first member of its own amounts: of GPUs as much as each, or one side has none."""
    others = request.members - 1
    milli = random.choice((0, each.fgpu_milli)) if each.fgpu_milli else random.choice((0, 250, 1000, 2000))
    main = random.randint(1, 6), random.randint(1, 4), milli
    amounts = [own + others * it for own, it in zip(main, each[:3], strict=True)]
    return request._replace(cpu=amounts[0], memory_bytes=amounts[1], fgpu_milli=amounts[2], main=main)


def random_host(random: Random, host_id: int, group_id: int, devices: int) -> HostView:
    """Return a host; names are equal now and then, so that ids decide."""
    cpu, memory, divides = WHOLE * random.choice((8, 8, 12)), random.choice((8, 8, 12)), random.random() < 0.85
    weights = [GPU_WEIGHTS[(cpu * host_id + memory + place) % len(GPU_WEIGHTS)] for place in range(devices)]
    gpus = tuple(GpuView(100 * host_id + place, 1000, 1000, weight) for place, weight in enumerate(weights))
    return HostView(
        id=host_id,
        name=f"host-{random.choice((host_id, 9 - host_id, 5))}",
        group_id=group_id,
        cpu=cpu,
        memory_bytes=memory,
        cpu_free=cpu,
        memory_free_bytes=memory,
        gpus=gpus,
        divides=divides,
        traits=frozenset(trait for trait in TRAITS if random.random() < 0.7)
        | ({gpu_size_trait(random.choice(SIZES), divides=divides)} if devices else set()),
        closeness=random_closeness(random, devices),
        topology=random.choice(((), ("row1",), ("row1", "rack1"), ("row1", "rack2"), ("row2", "rack1"))),
    )


def size_of(host: HostView) -> tuple[int, bool]:
    """Return the size of each GPU of a host, and whether they can be divided."""
    return next(int(it.split(":")[1]) for it in host.traits if it.startswith("gpu_size:")), host.divides


def random_limits(random: Random, part: float) -> PolicyLimits:
    """Return limits with a probability."""
    if random.random() >= part:
        return PolicyLimits()
    return PolicyLimits(
        cpu=random.choice((None, None, random.randint(2, 14))),
        memory=random.choice((None, None, random.randint(2, 14))),
        fgpu=random.choice((None, None, random.randint(0, 16) * 250)),
        sessions=random.choice((None, None, random.randint(1, 6))),
    )


def random_rules(random: Random, *, is_fair: bool) -> Rules:
    """Return rules of a group."""
    return Rules(
        placement_policy=random.choice(list(PlacementPolicyName)),
        queue_order=QueueOrder.FAIR if is_fair else QueueOrder.FIFO,
        ageing=random.choice((HOUR, 6 * HOUR)),
        reservation_delay=random.choice((timedelta(0), HOUR, 4 * HOUR)),
        overhead=random.choice((timedelta(0), 6 * MINUTE, 6 * MINUTE)),
        half_life=random.choice((HOUR, 24 * HOUR)),
        starvation_limit=random.choice((2 * HOUR, 24 * HOUR)),
        default_weight=random.choice((100, 50)),
        core_milli=random.choice((WHOLE, WHOLE, 1)),
        mix=MIX,
    )


def random_world(random: Random, *, fair: float = 0.4, waiting: int = 7) -> World:
    """Return a world of one or two groups."""
    groups = random.choice(((1,), (1,), (1, 2)))
    devices, limited = random.choice((0, 1, 2, 2, 3, 4)), random.choice((0, 0.2, 0.6))
    hosts = [
        random_host(random, host_id, random.choice(groups), random.choice((devices, devices, random.randint(0, 4))))
        for host_id in range(1, random.randint(2, 5))
    ]
    world = World(
        random,
        hosts,
        rules={group: random_rules(random, is_fair=random.random() < fair) for group in groups},
        limits={user: random_limits(random, limited) for user in USERS},
        project_limits={project: random_limits(random, limited) for project in PROJECTS},
        weights={
            Association(project, user): random.choice((50, 200))
            for project, user in ((0, 1), (0, 2), (7, 0))
            if random.random() < 0.5
        },
        image_hosts={image: frozenset(it.id for it in hosts if random.random() < 0.5) for image in (1, 2)},
        unbounded=random.choice((0, 0.15, 0.15, 1)),
        clusters=random.choice((0, 0.15, 0.15, 0.5)),
        by_memory=random.choice((0, 0.3, 0.6)),
    )
    for group in groups:
        for project, user in ((0, 1), (0, 3), (7, 1), (8, 2)):
            if random.random() < 0.4:
                hours = 3600.0 * random.randint(0, 20)
                usage = DecayedUsage(hours, hours / 2, 250 * hours, world.now - random.choice((0, 1, 5, 30)) * HOUR)
                world.used[group, Association(project, user)] = usage
    for host in hosts:
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            world.run(host)
    if random.random() < 0.5:
        world.submit_first(sum(len(host.gpus) for host in hosts[:1]))
    elif random.random() < (1 if world.unbounded == 1 else 0.4):
        world.submit_cluster_first()
    for _ in range(random.randint(1, waiting)):
        world.submit()
    return world
