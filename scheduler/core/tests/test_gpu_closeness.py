"""Which whole devices a session gets, by how the GPUs of its host are connected.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| sessions_get_pairs_and_leave_pairs | what is left does not count; the closest left over are taken |
| a_part_breaks_no_pair | the part is taken where the policy says |
| whole_devices_are_close_to_the_part | the part's device does not count as a member |
| among_equal_hosts_the_closest_wins | the first host is taken; the image decides first |
| a_greedy_choice_takes_whole_islands | the first devices are taken; the farthest is added |
| a_replay_keeps_pairs_together | the topology is lost when a state is copied, or unknown to the core |
"""

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from scheduler.core.capacity.gpu_closeness import MAX_SETS, GpuCloseness, closeness_of
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.tests.worlds import NOW, make_host, make_request, make_snapshot, placed, plan
from scheduler.core.types import Closeness, HostView, RunningSession, SessionRequest

BOARDS = (0, 1, 0, 1)  # NVLink bridges join the first and third device, and the second and fourth
NODES = (0, 0, 0, 0, 1, 1, 1, 1)


def islands(of: tuple[int, ...], near: int = 400, far: int = 10) -> Closeness:
    """Return the closeness of devices of which those of one number are near."""
    return tuple(tuple(0 if i == j else near if a == b else far for j, b in enumerate(of)) for i, a in enumerate(of))


def bridged(host_id: int = 1, free: tuple[int, ...] = (1000,) * 4) -> HostView:
    return replace(make_host(host_id, free), closeness=islands(BOARDS))


def devices_of(hosts: list[HostView], *requests: SessionRequest) -> dict[str, tuple[int, ...]]:
    """Return the positions of the devices that each request gets."""
    found = placed(plan(make_snapshot(hosts, requests)))
    return {name: tuple(gpu_id % 100 for gpu_id, _ in shares) for name, (_, shares) in found.items()}


def test_sessions_get_pairs_and_leave_pairs() -> None:
    two, one = make_request("two", 2000), make_request("one", 1000)
    assert devices_of([bridged()], two) == {"two": (0, 2)}
    assert devices_of([make_host(1, (1000,) * 4)], two) == {"two": (0, 1)}  # nothing is known
    assert devices_of([bridged(free=(1000, 500, 1000, 1000))], one) == {"one": (3,)}  # its pair is broken already
    assert devices_of([bridged()], one, two) == {"one": (0,), "two": (1, 3)}
    nodes = replace(make_host(1, (1000,) * 8), closeness=islands(NODES, near=20))
    asked = [make_request(name, milli) for name, milli in (("a", 1000), ("b", 4000), ("c", 2000))]
    assert devices_of([nodes], *asked) == {"a": (0,), "b": (4, 5, 6, 7), "c": (1, 2)}


def test_a_part_breaks_no_pair() -> None:
    halves = [make_request("a", 500), make_request("b", 600), make_request("c", 2000)]
    assert devices_of([bridged()], *halves) == {"a": (0,), "b": (2,), "c": (1, 3)}


def test_whole_devices_are_close_to_the_part() -> None:
    request = make_request("a", 1500)
    assert devices_of([bridged(free=(1000, 500, 1000, 1000))], request) == {"a": (1, 3)}
    used = make_host(1, (500, 1000, 1000, 0, 1000))
    assert devices_of([replace(used, closeness=islands((0, 1, 0, 1, 0)))], request) == {"a": (0, 2)}
    (placement,) = plan(make_snapshot([bridged()], [request])).placements
    assert placement.shares == ((100, 500), (102, 1000))


def test_among_equal_hosts_the_closest_wins() -> None:
    far, near = bridged(1, (1000, 1000, 0, 0)), bridged(2, (1000, 0, 1000, 0))
    snapshot = make_snapshot([far, near], [make_request("a", 2000, image=7)])
    for holders in ((), (1,), (1, 2)):
        assert placed(plan(replace(snapshot, image_hosts={7: frozenset(holders)})))["a"][0] == 2
    single = make_snapshot([far, near], [make_request("a", 1000, image=7)])
    assert placed(plan(replace(single, image_hosts={7: frozenset({2})})))["a"][0] == 2  # nothing to be close to
    assert placed(plan(single))["a"][0] == 1


def test_a_greedy_choice_takes_whole_islands() -> None:
    of = tuple(place % 8 for place in range(16))
    closeness = GpuCloseness(islands(of))
    chosen = closeness.choose(range(16), 8)  # more sets than are compared
    assert sorted(of[device] for device in chosen) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(list(combinations(range(16), 8))) > MAX_SETS
    assert closeness.choose(range(16), 16) == tuple(range(16))


@pytest.mark.parametrize("pairs", [(), ((0,),), ((0, 9), (9, 0)), islands((0, 0, 0, 0))])
def test_equal_connections_make_no_difference(pairs: Closeness) -> None:
    assert closeness_of(pairs) is None
    host = HostCapacity(host_id=1, index=0, cpu=1, memory_bytes=1, gpus=make_host(1, (1000,) * 4).gpus, closeness=pairs)
    assert host.split(2000, ()) == {0: 1000, 1: 1000}


def test_a_replay_keeps_pairs_together() -> None:
    """Sessions with two GPUs come and go beside others: no more wait, and far fewer get GPUs of two islands."""
    hosts = [make_host(host_id, (1000,) * 8, cpu=64) for host_id in (1, 2)]
    connected = [replace(host, closeness=islands(BOARDS * 2)) for host in hosts]
    for seed in range(10):
        started, joined = replay(Random(seed), connected)
        started_by_position, joined_by_position = replay(Random(seed), hosts)
        assert started == started_by_position
        assert joined > 0.8 > 0.65 > joined_by_position


def replay(random: Random, hosts: list[HostView]) -> tuple[list[tuple[str, ...]], float]:
    """Return which sessions each of 400 passes starts, and the part of those with two GPUs whose GPUs are joined."""
    state = IncrementalState(make_snapshot(hosts, [make_request("first", 1000)]))
    running: list[RunningSession] = []
    started, joined = [], []
    for number in range(400):
        state.add(make_request(f"s{number:03}", random.choice((500, 1000, 1000, 2000, 2000, 2000))))
        placements = state.serve(NOW)
        started.append(tuple(placement.session_id for placement in placements))
        for placement in placements:
            running.append(state.cluster.groups[1].running[placement.session_id])
            if len(placement.shares) == 2:
                (one, _), (other, _) = placement.shares
                joined.append(BOARDS[one % 100 % 4] == BOARDS[other % 100 % 4])
        if number % 10 == 0:
            state = state.copy()
        if len(running) > 6:
            state.update([running.pop(random.randrange(len(running)))], [])
    return started, sum(joined) / len(joined)
