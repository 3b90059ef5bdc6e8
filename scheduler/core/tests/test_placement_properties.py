"""Properties of every plan, on small random snapshots.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| no_device_is_over_its_capacity | a placement's shares are not taken from the devices |
| no_host_exceeds_its_free_cpu_or_memory | its cores are not taken from the host; memory is not compared |
| shares_are_the_request_on_whole_devices_and_one_part | no part beside whole devices; a part split over two; |
| | the emptiest device taken; |
| | a part of a device where the host lends whole ones |
| nothing_is_placed_on_a_host_of_another_group | the hosts of all groups are one group |
| each_host_has_the_storage_roots_of_its_sessions | roots ignored when a host is looked at, at first or after a change |
| placements_never_exceed_limits | what the pass places is not counted against limits |
| images_decide_among_equal_hosts_only | an unequal host taken; the reserved or an avoided host taken |
| each_request_is_placed_or_explained_once_in_order | waiting listed from the last; one over its limit dropped; |
| | a too long detail |
| the_plan_does_not_depend_on_host_order | hosts are left in the order given; out-of-date ranks are not dropped |
| requests_waiting_for_capacity_fit_nowhere_in_turn | a changed host forgotten; a size class of them left out; |
| | the walk begins too late; |
| | a request that does not fit stops the queue |
| the_plan_equals_a_naive_implementation | most free GPU first; avoided hosts like any other; |
| | avoided hosts never used; the image before closeness; what is left, or a part's device, does not count |
| a_pass_over_its_own_outcome_changes_nothing | limits or free amounts as they were before the pass |
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.limits import FIELDS, Amounts, PolicyLimits
from scheduler.core.tests.worlds import make_host, make_request, plan, random_closeness
from scheduler.core.types import Closeness, GpuView, HostView, LimitHolder, Placement, Plan, SessionRequest, Snapshot
from sessions.lifecycle import Reason

GROUPS = {1: 1000, 2: 2000, 3: 1000}  # capacity of a GPU by group; no host is ever in group 3
SHARES = (0, 250, 250, 500, 500, 750, 1000, 1000, 1250, 1500, 2000, 2500, 3000, 4000)


def random_host(random: Random, host_id: int) -> HostView:
    """Return a host, partly in use, with up to four devices; names collide sometimes, so that ids decide."""
    group = random.choice((1, 1, 1, 2, 2))
    free = [GROUPS[group] * random.choice((0, 1, 2, 3, 4, 4, 4)) // 4 for _ in range(random.randint(0, 4))]
    roots = random.choice(((), (7,), (7, 8)))
    host = make_host(host_id, free, capacity=GROUPS[group], cpu=12, memory=12, group=group, roots=roots)
    name = f"host-{random.randint(0, 2)}"
    free_now = (12, 12, random.randint(0, 12))  # often equal, so that ties are broken
    divides = random.random() < 0.75
    return replace(
        host,
        name=name,
        cpu_free=random.choice(free_now),
        memory_free_bytes=random.choice(free_now),
        divides=divides,
        closeness=random_closeness(random, len(free)),
    )


def random_request(random: Random, name: str) -> SessionRequest:
    """Return a request; the choices are few, so that equal shapes and conflicts are frequent."""
    return make_request(
        name,
        random.choice(SHARES),
        cpu=random.randint(1, 3),
        memory=random.randint(1, 3),
        owner=random.randint(1, 3),
        group=random.choice((1, 1, 1, 1, 1, 2, 2, 2, 3)),
        avoided=random.choice(((), (), (1,), (2,), (3,), (1, 2), (3, 1))),
        roots=random.choice(((), (), (), (7,), (8,))),
        image=random.randint(1, 3),
    )


def random_owner(random: Random) -> LimitHolder:
    """Return an owner, every other one without limits, so that hosts fill up too."""
    used = Amounts(cpu=random.randint(0, 4), fgpu=random.choice((0, 500)), sessions=random.randint(0, 2))
    limits = PolicyLimits(
        cpu=random.choice((None, random.randint(0, 12))),
        memory=random.choice((None, random.randint(0, 12))),
        fgpu=random.choice((None, random.randint(0, 20) * 250)),
        sessions=random.choice((None, random.randint(0, 6))),
    )
    return LimitHolder(limits=random.choice((limits, PolicyLimits())), used=used)


def random_snapshot(random: Random, hosts: int, queue: int) -> Snapshot:
    """Return a snapshot of so many hosts and requests, and three owners."""
    return Snapshot(
        hosts=tuple(random_host(random, host_id) for host_id in range(1, hosts + 1)),
        queue=tuple(random_request(random, f"s{n}") for n in range(queue)),
        owners={owner_id: random_owner(random) for owner_id in (1, 2, 3)},
        image_hosts={
            image_id: frozenset(host_id for host_id in range(1, hosts + 1) if random.random() < 0.4)
            for image_id in (1, 2)  # nobody has the third
        },
    )


def snapshots() -> st.SearchStrategy[Snapshot]:
    """Draw snapshots by a seed, which finds conflicts sooner than drawing each number; their sizes shrink."""
    return st.builds(
        random_snapshot, st.randoms(use_true_random=True), hosts=st.integers(0, 6), queue=st.integers(0, 30)
    )


many = settings(max_examples=500, deadline=None)


@many
@given(snapshots())
def test_no_device_is_over_its_capacity(snapshot: Snapshot) -> None:
    free = {gpu.id: gpu.free_milli for host in snapshot.hosts for gpu in host.gpus}
    for placement in plan(snapshot).placements:
        for gpu_id, share in placement.shares:
            free[gpu_id] -= share
    assert all(amount >= 0 for amount in free.values())


@many
@given(snapshots())
def test_no_host_exceeds_its_free_cpu_or_memory(snapshot: Snapshot) -> None:
    asked = {request.id: request for request in snapshot.queue}
    cpu = {host.id: host.cpu_free for host in snapshot.hosts}
    memory = {host.id: host.memory_free_bytes for host in snapshot.hosts}
    for placement in plan(snapshot).placements:
        cpu[placement.host_id] -= asked[placement.session_id].cpu
        memory[placement.host_id] -= asked[placement.session_id].memory_bytes
    assert all(amount >= 0 for amount in (*cpu.values(), *memory.values()))


@many
@given(snapshots())
def test_shares_are_the_request_on_whole_devices_and_one_part(snapshot: Snapshot) -> None:
    asked = {request.id: request for request in snapshot.queue}
    hosts = {host.id: host for host in snapshot.hosts}
    for placement in plan(snapshot).placements:
        request, host = asked[placement.session_id], hosts[placement.host_id]
        capacity = GROUPS[host.group_id]
        devices = [gpu_id for gpu_id, _ in placement.shares]
        parts = sorted(share for _, share in placement.shares)
        assert sum(parts) == request.fgpu_milli
        assert host.divides or not request.fgpu_milli % capacity
        assert len(set(devices)) == len(devices)
        assert set(devices) <= {gpu.id for gpu in host.gpus}
        assert all(part == capacity for part in parts[1:])
        assert len(parts) == -(-request.fgpu_milli // capacity)


@many
@given(snapshots())
def test_nothing_is_placed_on_a_host_of_another_group(snapshot: Snapshot) -> None:
    asked = {request.id: request for request in snapshot.queue}
    groups = {host.id: host.group_id for host in snapshot.hosts}
    assert all(groups[it.host_id] == asked[it.session_id].group_id for it in plan(snapshot).placements)


@many
@given(snapshots())
def test_each_host_has_the_storage_roots_of_its_sessions(snapshot: Snapshot) -> None:
    asked = {request.id: request for request in snapshot.queue}
    roots = {host.id: host.traits for host in snapshot.hosts}
    assert all(roots[it.host_id].issuperset(asked[it.session_id].traits) for it in plan(snapshot).placements)


@many
@given(snapshots())
def test_images_decide_among_equal_hosts_only(snapshot: Snapshot) -> None:
    """The same requests start, and the hosts are left with the same free amounts, whoever has which."""
    without = replace(snapshot, image_hosts={})
    assert [it.session_id for it in plan(snapshot).placements] == [it.session_id for it in plan(without).placements]
    assert left_free(snapshot) == left_free(without)


def left_free(snapshot: Snapshot) -> list[tuple[object, ...]]:
    """Return the amounts that each host has left after the pass, sorted."""
    hosts: list[HostView] = list(snapshot.hosts)
    asked = {request.id: request for request in snapshot.queue}
    for placement in plan(snapshot).placements:
        hosts = after(hosts, asked[placement.session_id], placement)
    return sorted((*naive_amounts(host)[:-1], sorted(host.traits)) for host in hosts)


@many
@given(snapshots())
def test_placements_never_exceed_limits(snapshot: Snapshot) -> None:
    asked = {request.id: request for request in snapshot.queue}
    used = {owner_id: owner.used for owner_id, owner in snapshot.owners.items()}
    for placement in plan(snapshot).placements:
        request = asked[placement.session_id]
        used[request.owner_id] += Amounts(
            cpu=request.cpu, memory=request.memory_bytes, fgpu=request.fgpu_milli, sessions=1
        )
        for name in FIELDS:
            limit = getattr(snapshot.owners[request.owner_id].limits, name)
            assert limit is None or getattr(used[request.owner_id], name) <= limit


@many
@given(snapshots())
def test_each_request_is_placed_or_explained_once_in_order(snapshot: Snapshot) -> None:
    alike = tuple(request._replace(duration=None) for request in snapshot.queue)  # the shortest go first behind a head
    result = plan(replace(snapshot, queue=alike))
    ids = [request.id for request in snapshot.queue]
    placed = [placement.session_id for placement in result.placements]
    waiting = [entry.session_id for entry in result.waiting]
    assert sorted(placed + waiting, key=ids.index) == ids
    for group_id in {request.group_id for request in snapshot.queue}:  # of others, those behind their head come last
        here = [name for name in placed if snapshot.queue[ids.index(name)].group_id == group_id]
        assert here == sorted(here, key=ids.index)
    assert waiting == sorted(waiting, key=ids.index)
    assert all(0 < len(entry.detail) <= 300 for entry in result.waiting)  # the width of the column


@many
@given(snapshots(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_host_order(snapshot: Snapshot, random: Random) -> None:
    hosts = list(snapshot.hosts)
    random.shuffle(hosts)
    owners = dict(reversed(list(snapshot.owners.items())))
    assert plan(snapshot) == plan(snapshot) == plan(replace(snapshot, hosts=tuple(hosts), owners=owners))


@many
@given(snapshots())
def test_requests_waiting_for_capacity_fit_nowhere_in_turn(snapshot: Snapshot) -> None:
    result = plan(snapshot)
    placements = {placement.session_id: placement for placement in result.placements}
    reasons = {entry.session_id: entry.reason for entry in result.waiting}
    hosts = list(snapshot.hosts)
    for request in snapshot.queue:
        if request.id in placements:
            hosts = after(hosts, request, placements[request.id])
        own = [host for host in hosts if host.group_id == request.group_id]
        assert (reasons.get(request.id) == Reason.NO_HOST) <= (not own)
        if reasons.get(request.id) == Reason.NO_CAPACITY:
            assert own
            assert not any(naive_shares(host, request) is not None for host in own)


@many
@given(snapshots())
def test_a_pass_over_its_own_outcome_changes_nothing(snapshot: Snapshot) -> None:
    first = plan(snapshot)
    asked = {request.id: request for request in snapshot.queue}
    hosts, owners = list(snapshot.hosts), dict(snapshot.owners)
    for placement in first.placements:
        request = asked.pop(placement.session_id)
        hosts = after(hosts, request, placement)
        owner = owners[request.owner_id]
        more = Amounts(cpu=request.cpu, memory=request.memory_bytes, fgpu=request.fgpu_milli, sessions=1)
        owners[request.owner_id] = replace(owner, used=owner.used + more)
    left = Snapshot(hosts=tuple(hosts), queue=tuple(asked.values()), owners=owners)
    assert plan(left) == Plan(placements=(), waiting=first.waiting)


@many
@given(snapshots())
def test_the_plan_equals_a_naive_implementation(snapshot: Snapshot) -> None:
    for group_id in {request.group_id for request in snapshot.queue}:  # in one of them, alike, the queue says the order
        here = [request._replace(duration=None) for request in snapshot.queue if request.group_id == group_id]
        world = replace(snapshot, queue=tuple(here))
        result = plan(world)
        placements, waiting = naive_plan(world)
        assert result.placements == placements
        assert tuple((entry.session_id, entry.reason) for entry in result.waiting) == waiting


def naive_plan(snapshot: Snapshot) -> tuple[tuple[Placement, ...], tuple[tuple[str, Reason], ...]]:
    """Return what plan() must, by trying every host for every request."""
    hosts = list(snapshot.hosts)
    held: dict[int, list[SessionRequest]] = defaultdict(list)
    placements: list[Placement] = []
    for request in snapshot.queue:
        fitting = [host for host in hosts if naive_shares(host, request) is not None]
        if fitting and naive_within(snapshot.owners[request.owner_id], [*held[request.owner_id], request]):
            host = min(fitting, key=lambda host: (host.id in request.avoided_host_ids, *naive_order(host)))
            host = naive_equal(snapshot, hosts, host, request)
            placement = Placement(session_id=request.id, host_id=host.id, shares=naive_shares(host, request) or ())
            placements.append(placement)
            held[request.owner_id].append(request)
            hosts = after(hosts, request, placement)
    placed = {placement.session_id for placement in placements}
    waiting = []
    for request in snapshot.queue:
        if not naive_within(snapshot.owners[request.owner_id], [*held[request.owner_id], request]):
            reason = Reason.USER_LIMIT
        elif request.group_id not in {host.group_id for host in hosts}:
            reason = Reason.NO_HOST
        elif not any(naive_has_roots(host, request) for host in hosts):
            reason = Reason.NO_STORAGE
        else:
            reason = Reason.NO_CAPACITY
        if request.id not in placed:
            waiting.append((request.id, reason))
    return tuple(placements), tuple(waiting)


def naive_order(host: HostView) -> tuple[int, int, int, int, str, int]:
    """Return the rank of a host that fits: the lowest is preferred."""
    free = sum(gpu.free_milli for gpu in host.gpus)
    rest = (0, 0) if host.gpus else (host.cpu_free, host.memory_free_bytes)
    return free, len(host.gpus), *rest, host.name, host.id


def naive_equal(snapshot: Snapshot, hosts: Sequence[HostView], host: HostView, request: SessionRequest) -> HostView:
    """Return of the hosts that equal `host` the one with the closest devices, then one that has the image."""
    holders = snapshot.image_hosts.get(request.image_id, frozenset())
    equal = [
        other
        for other in hosts
        if naive_amounts(other) == naive_amounts(host) and other.id not in request.avoided_host_ids
    ]
    if is_uniform(host.closeness) or request.fgpu_milli < 2 * GROUPS[host.group_id]:
        having = [other for other in equal if other.id in holders]
        return host if host.id in holders else min(having, key=naive_order, default=host)
    whole = request.fgpu_milli // GROUPS[host.group_id]

    def rank(other: HostView) -> tuple[int, bool, bool, str, int]:
        free = [place for place, gpu in enumerate(other.gpus) if gpu.free_milli == gpu.capacity_milli]
        close = max(naive_total(other, chosen) for chosen in combinations(free, whole))
        return -close, other.id not in holders, other.id != host.id, other.name, other.id

    return min((other for other in [host, *equal] if not is_uniform(other.closeness)), key=rank)


def is_uniform(closeness: Closeness) -> bool:
    """Return whether all pairs of devices are as close as each other."""
    return len({closeness[one][other] for one, other in combinations(range(len(closeness)), 2)}) < 2


def naive_total(host: HostView, devices: Sequence[int]) -> int:
    """Return the closeness of all pairs of devices."""
    return sum(host.closeness[one][other] for one, other in combinations(devices, 2)) if host.closeness else 0


def naive_amounts(host: HostView) -> tuple[object, ...]:
    """Return all by which a host differs from others, but for its name."""
    free = sorted(gpu.free_milli for gpu in host.gpus)
    return host.group_id, host.cpu_free, host.memory_free_bytes, free, host.divides or not free, host.traits


def naive_shares(host: HostView, request: SessionRequest) -> tuple[tuple[int, int], ...] | None:
    """Return the shares that `host` would give, in device order, or None if the request does not fit."""
    if (
        host.group_id != request.group_id
        or host.cpu_free < request.cpu
        or host.memory_free_bytes < request.memory_bytes
        or not naive_has_roots(host, request)
    ):
        return None
    whole, rest = divmod(request.fgpu_milli, GROUPS[host.group_id])
    if rest and not host.divides:
        return None
    empty = [place for place, gpu in enumerate(host.gpus) if gpu.free_milli == gpu.capacity_milli]
    tightest = [(gpu.free_milli, place) for place, gpu in enumerate(host.gpus) if gpu.free_milli >= rest]
    if rest and not tightest:
        return None
    shared = [min(tightest)[1]] if rest and min(tightest)[1] not in empty else []
    count = whole + (1 if rest and not shared else 0)
    if len(empty) < count:
        return None
    chosen = min(
        combinations(empty, count),
        key=lambda places: (
            -naive_total(host, [*places, *shared]),
            -naive_total(host, [place for place in empty if place not in places]),
            places,
        ),
    )
    amounts = dict.fromkeys(chosen, GROUPS[host.group_id])
    if rest:
        amounts[shared[0] if shared else chosen[0]] = rest
    return tuple((gpu.id, amounts[place]) for place, gpu in enumerate(host.gpus) if place in amounts)


def naive_has_roots(host: HostView, request: SessionRequest) -> bool:
    """Return whether `host` is of the group of the request and has its storage roots."""
    return host.group_id == request.group_id and all(trait in host.traits for trait in request.traits)


def naive_within(owner: LimitHolder, requests: Sequence[SessionRequest]) -> bool:
    """Return whether `requests`, added to what the owner holds, are within the limits."""
    limits, used = owner.limits, owner.used
    sums = (
        (limits.cpu, used.cpu + sum(request.cpu for request in requests)),
        (limits.memory, used.memory + sum(request.memory_bytes for request in requests)),
        (limits.fgpu, used.fgpu + sum(request.fgpu_milli for request in requests)),
        (limits.sessions, used.sessions + len(requests)),
    )
    return all(limit is None or amount <= limit for limit, amount in sums)


def after(hosts: Sequence[HostView], request: SessionRequest, placement: Placement) -> list[HostView]:
    """Return the hosts after `placement`."""
    shares = dict(placement.shares)
    return [
        replace(
            host,
            cpu_free=host.cpu_free - request.cpu,
            memory_free_bytes=host.memory_free_bytes - request.memory_bytes,
            gpus=tuple(
                GpuView(id=g.id, capacity_milli=g.capacity_milli, free_milli=g.free_milli - shares.get(g.id, 0))
                for g in host.gpus
            ),
        )
        if host.id == placement.host_id
        else host
        for host in hosts
    ]
