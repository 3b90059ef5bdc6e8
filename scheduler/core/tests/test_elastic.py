"""Elastic members take what all others leave: no placement and no promise to others differs by them."""

from dataclasses import replace
from random import Random
from typing import get_args

import pytest

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.elastic import find_beside, in_the_way_of
from scheduler.core.cluster.group_state import GroupState
from scheduler.core.placement import serve
from scheduler.core.queue.remaining_limits import HolderLimits
from scheduler.core.tests.oracle_worlds import World, random_world
from scheduler.core.tests.worlds import NOW, make_host, make_request, make_snapshot
from scheduler.core.types import (
    GPU_MODEL_TRAIT,
    Beside,
    ClusterMode,
    LimitHolder,
    RunningSession,
    SessionRequest,
    entries_of,
)

NOBODY = 99  # an owner without limits and other sessions


def elastic(random: Random, world: World) -> SessionRequest:
    """Return a request beside one or two hosts of the world, and some of their devices."""
    own = random.sample(world.hosts, min(len(world.hosts), random.randint(1, 2)))
    gpus = [gpu.id for host in own for gpu in host.gpus if random.random() < 0.3]
    return SessionRequest(
        "elastic",
        NOBODY,
        own[0].group_id,
        random.randint(1, 3),
        random.randint(1, 3),
        random.choice((0, 250, 500, 1000)),
        mode=random.choice(get_args(ClusterMode)),
        shares_gpus=random.random() < 0.3,
        beside=Beside(tuple(host.id for host in own), tuple(gpus)),
    )


def promises(cluster: ClusterState) -> dict[int, tuple[object, ...]]:
    return {
        group_id: (
            group.head and group.head.id,
            group.reservation and group.reservation.at,
            [host.host_id for host in group.reserved_hosts],
        )
        for group_id, group in cluster.groups.items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_no_promise_and_no_placement_differs_by_them(seed: int) -> None:
    started = 0
    for number in range(25):
        random = Random(1000 * seed + number)
        world = random_world(random, fair=0)
        snapshot = world.snapshot()
        cluster, twin = ClusterState(snapshot), ClusterState(snapshot)
        placed, left = serve(cluster, entries_of(snapshot.queue), snapshot.rules, world.now)
        assert (placed, left) == serve(twin, entries_of(snapshot.queue), snapshot.rules, world.now)
        request = elastic(random, world)
        group = cluster.groups.get(request.group_id)
        found = group and find_beside(group, request)
        if not group or not found or not request.beside:
            continue
        started += 1
        _, host_id, shares = found
        host = group.host_capacities[host_id]
        assert not host.is_reserved
        is_own = host.host_id in request.beside.host_ids
        assert {"single-host": is_own, "spread": not is_own, "any": True}[request.mode]
        assert request.shares_gpus or not {gpu for gpu, _ in shares} & {*request.beside.gpu_ids}
        assert sum(milli for _, milli in shares) == request.fgpu_milli
        owed = host.device_owed.copy()
        cluster.start_at(request, [found], world.now)
        assert min(host.cpu, host.memory_bytes) >= 0
        assert host.device_owed == owed
        for state in (cluster, twin):
            state.clear_reservations()
            assert not serve(state, left, snapshot.rules, world.now)[0]
        assert promises(cluster) == promises(twin), number
    assert started


def host_beside(group: GroupState, request: SessionRequest) -> int | None:
    found = find_beside(group, request)
    return found and found[1]


def test_its_gpus_are_of_the_model_of_the_others() -> None:
    models = [frozenset({f"{GPU_MODEL_TRAIT}:{name}"}) for name in ("B", "A", "A")]
    hosts = [replace(make_host(number, [1000]), traits=traits) for number, traits in enumerate(models, start=1)]
    group = ClusterState(make_snapshot(hosts, [])).groups[1]
    gpu = group.host_views[2].gpus[0].id
    request = make_request("more", 1000)._replace(mode="spread", beside=Beside((3,), (gpu,)))
    assert host_beside(group, request) == 2
    assert host_beside(group, request._replace(fgpu_milli=0)) == 1, "it has none"
    assert host_beside(group, request._replace(beside=Beside((1, 3), (gpu,)), mode="any")) == 2, "main1 has none there"
    assert host_beside(group, request._replace(beside=Beside((3,), ()))) == 1, "nobody has a GPU yet"


def test_the_hosts_of_the_others_come_first() -> None:
    group = ClusterState(make_snapshot([make_host(1, [1000]), make_host(2, [1000])], [])).groups[1]
    request = make_request("more", 500)._replace(mode="any", beside=Beside((2,), ()))
    assert host_beside(group, request) == 2
    assert host_beside(group, request._replace(avoided_host_ids=(2,))) == 1, "but for those that failed it"
    gpu = group.host_views[1].gpus[0].id
    assert host_beside(group, request._replace(beside=Beside((2,), (gpu,)))) == 1, "each has a GPU of its own"


def test_the_youngest_end_where_limits_are_used_up() -> None:
    holder = LimitHolder(limits=PolicyLimits(cpu=4), used=Amounts(cpu=4))
    limits = HolderLimits({1: holder}, {})
    old, young = (
        RunningSession(name, 1, 1, 1, 1, started_at=NOW.replace(hour=hour), is_preemptible=True, is_elastic=True)
        for name, hour in (("old", 1), ("young", 2))
    )
    request = make_request("waits", 0, cpu=1)
    assert in_the_way_of(request, limits, [old, young]) == [young]
    assert in_the_way_of(request._replace(cpu=2), limits, [old, young]) == [young, old]
    assert in_the_way_of(request._replace(cpu=3), limits, [old, young]) == [], "it would wait all the same"
    ending = young._replace(is_preemptible=False)
    assert in_the_way_of(request, limits, [old, ending]) == [], "that is on its way"
