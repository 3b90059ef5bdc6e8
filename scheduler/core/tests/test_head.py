"""The head of a queue: the first request that a host could hold; and what looking for its start costs.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| what_no_host_could_hold_keeps_nothing_from_others | any refused request becomes the head |
| the_head_is_the_first_that_a_host_could_hold | any refused request becomes the head |
| what_only_an_overdue_host_could_hold_is_passed_over | what overdue sessions hold counts as leaving |
| a_start_that_time_limits_cannot_tell_is_sought_once | a head without a start is made anew at each end |
| a_forecasts_work_grows_as_what_runs | a head without a start is made anew at each end |
| a_whole_host_is_the_best_at_each_moment | at first one host alone is looked at; then only grown ones are |
| a_whole_host_is_the_best_among_crowded_ones | the reservation stays where it was; grown hosts are not compared |
| a_whole_host_moves_to_one_that_has_grown | the reservation stays where it was; grown hosts are not compared |
| a_forecast_ends_at_its_work_limit | the limit is ignored |
| grown_hosts_are_noted_in_linear_time | each is compared with all before it; a host that was too small is |
| | looked at again |
"""

from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given

from resources.amounts.units import GIB
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.cluster import group_state, reservation
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.group_state import GroupState
from scheduler.core.cluster.reservation import Reservation, reserve_whole_hosts
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD, plan, serve
from scheduler.core.tests.timelines import HOUR, at, many, worlds
from scheduler.core.tests.worlds import NOW, UNLIMITED, make_host, make_request, make_snapshot
from scheduler.core.types import RunningSession, SessionRequest, Shape, Snapshot, entries_of
from scheduler.core.waiting.forecast import advance_through_ends
from scheduler.core.waiting.wait_queue import GrownHosts, WaitQueue
from scheduler.simulation.simulator import Job, simulate


@pytest.mark.parametrize(
    "asked",
    [
        make_request("impossible", 8000),
        make_request("impossible", 1000, cpu=17),
        make_request("impossible", 1000, memory=65 * GIB),
        make_request("impossible", 1000, roots=[9]),
    ],
)
def test_what_no_host_could_hold_keeps_nothing_from_others(asked: SessionRequest) -> None:
    hosts = [make_host(1, [1000] * 4, cpu=16), make_host(2, [1000] * 4, cpu=16)]
    stream = [make_request(f"s{n:03}", 1000)._replace(queued_at=at(n / 2 - 4)) for n in range(100)]
    wide = make_request("wide", 4000)._replace(queued_at=at(0.2))
    requests = [asked._replace(queued_at=at(0.1)), wide, *stream]
    jobs = [Job(request._replace(duration=4 * HOUR), 4 * HOUR) for request in requests]
    starts = simulate(make_snapshot(hosts, [wide]), jobs).starts
    assert starts["wide"] - wide.queued_at < 4 * HOUR
    assert "impossible" not in starts


def test_the_head_is_the_first_that_a_host_could_hold() -> None:
    running = tuple(RunningSession(f"r{n}", 1, 1, 1, 1, ((100 + n, 1000),), at(-1), at(1)) for n in range(2))
    queue = [make_request("a-huge", 3000), make_request("b-wide", 2000), make_request("c-small", 1000)]
    world = replace(make_snapshot([replace(make_host(1, [0, 0]), cpu=16)], queue), running=running)
    state = IncrementalState(world)
    assert state.serve(NOW) == []
    (group,) = state.cluster.groups.values()
    assert group.head is not None
    assert group.head.id == "b-wide"
    assert {waiting.session_id: waiting.eta for waiting in plan(world, NOW).waiting}["b-wide"] == at(1)


def test_what_only_an_overdue_host_could_hold_is_passed_over() -> None:
    stuck = RunningSession("stuck", 1, 1, 1, 1, ((100, 1000),), at(-9), at(-1))
    other = RunningSession("other", 1, 2, 1, 1, ((200, 1000),), at(-1), at(1))
    queue = [make_request("large", 2000), make_request("small", 1000)]
    world = replace(make_snapshot([make_host(1, [0, 0]), make_host(2, [0])], queue), running=(stuck, other))
    state = IncrementalState(world)
    state.serve(NOW)
    (group,) = state.cluster.groups.values()
    assert group.head is not None
    assert (group.head.id, state.starts(NOW, LOOK_AHEAD)["small"].at) == ("small", at(1))
    assert [waiting.eta for waiting in plan(world, NOW).waiting] == [None, at(1)]


def crowded(hosts: int, *, per_host: int = 8) -> Snapshot:
    """Return full hosts with a session each that has no time limit, and a head that needs one of them alone."""
    random = Random(1)
    views, running = [], []
    for number in range(1, hosts + 1):
        views.append(replace(make_host(number, [0] * per_host), cpu=99))
        ends = [None, *(at(random.randint(1, 20_000) / 1000) for _ in range(per_host - 1))]
        shares = [((100 * number + device, 1000),) for device in range(per_host)]
        running += [
            RunningSession(f"r{number}-{device}", 2, number, 1, 1, share, at(-1), end)
            for device, (share, end) in enumerate(zip(shares, ends, strict=True))
        ]
    waiting = [
        make_request(f"w{number}", random.choice((500, 1000, 2000)))._replace(duration=random.randint(1, 9) * HOUR)
        for number in range(20)
    ]
    queue = (make_request("head", per_host * 1000)._replace(queued_at=at(-2)), *waiting)
    owners = {1: UNLIMITED, 2: UNLIMITED}
    return Snapshot(hosts=tuple(views), queue=queue, owners=owners, running=tuple(running))


def test_a_start_that_time_limits_cannot_tell_is_sought_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sought: list[Shape] = []

    def count(shape: Shape, *rest: Any) -> tuple[Reservation | None, int]:
        sought.append(shape)
        return reservation.reserve(shape, *rest)

    monkeypatch.setattr(group_state, "reserve", count)
    state = IncrementalState(crowded(10))
    state.serve(NOW)
    assert len(state.starts(NOW, LOOK_AHEAD)) > 10
    assert [shape.fgpu_milli for shape in sought].count(8000) == 1


def test_a_forecasts_work_grows_as_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back = 0
    give_back = HostCapacity.give_back

    def count(host: HostCapacity, *rest: Any) -> None:
        nonlocal given_back
        given_back += 1
        give_back(host, *rest)

    def work(hosts: int) -> int:
        nonlocal given_back
        state = IncrementalState(crowded(hosts))
        state.serve(NOW)
        given_back = 0
        state.starts(NOW, LOOK_AHEAD)
        return given_back

    monkeypatch.setattr(HostCapacity, "give_back", count)
    small, large = work(25), work(100)
    assert small > LOOK_AHEAD / 2
    assert large <= 5 * small


def check_whole_hosts(world: Snapshot) -> int:
    """Compare what is reserved with the best of all hosts at each moment; return how often it has moved."""
    move = GroupState.move_whole_hosts
    moved = 0

    def checked(group: GroupState, grown: Any, now: datetime) -> list[HostCapacity]:
        nonlocal moved
        released = move(group, grown, now)
        moved += len(released)
        assert group.head is not None
        since = group.head.queued_at + group.rules.reservation_delay
        if since <= now:
            hosts = list(zip(group.capacity.hosts, group.host_views, strict=True))
            best = reserve_whole_hosts(group.head, hosts, group.running.values(), since, {})
            assert best is not None
            assert group.reservation is not None
            assert best.hosts == group.reservation.hosts
        return released

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupState, "move_whole_hosts", checked)
        plan(world, NOW)
    return moved


@many
@given(worlds(queue=20, unbounded=0.5))
def test_a_whole_host_is_the_best_at_each_moment(world: Snapshot) -> None:
    check_whole_hosts(world)


def test_a_whole_host_is_the_best_among_crowded_ones() -> None:
    assert check_whole_hosts(crowded(10)) > 3


def test_a_whole_host_moves_to_one_that_has_grown() -> None:
    hosts = [make_host(1, [500, 0]), make_host(2, [0, 0])]
    running = (
        RunningSession("r1", 1, 1, 1, 1, ((100, 500), (101, 1000)), at(-9)),
        RunningSession("r2", 1, 2, 1, 1, ((200, 1000),), at(-9)),
        RunningSession("r3", 1, 2, 1, 1, ((201, 1000),), at(-9), at(1)),
    )
    queue = [make_request("a-head", 2000), make_request("b-large", 1000), make_request("c-small", 500)]
    queue = [one._replace(queued_at=at(-2)) for one in queue]
    found = plan(replace(make_snapshot(hosts, queue), running=running), NOW)
    assert {it.session_id: it.eta for it in found.waiting} == {"a-head": None, "b-large": None, "c-small": at(1)}


def test_a_forecast_ends_at_its_work_limit() -> None:
    def starts(**limit: int) -> dict[str, datetime]:
        world = crowded(10)
        cluster = ClusterState(world)
        _, left = serve(cluster, entries_of(world.queue), world.rules, NOW)
        queue = WaitQueue(cluster)
        for position, request in enumerate(left):
            queue.add((position,), request, is_new=False)
        found = advance_through_ends(cluster, queue, NOW, LOOK_AHEAD, **limit)
        return {name: start.at for name, start in found.items()}

    everything, some = starts(), starts(work_limit=50)
    assert 0 < len(some) < len(everything)
    assert some.items() <= everything.items()
    assert starts(work_limit=50) == some


def test_grown_hosts_are_noted_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def fits(host: HostCapacity, shape: Shape) -> bool:
        nonlocal looks
        looks += 1
        return False

    def equals(host: HostCapacity, other: object) -> bool:
        nonlocal looks
        looks += 1
        return host is other

    hosts = [HostCapacity(host_id=n, index=n, cpu=1, memory_bytes=n % 2, gpus=()) for n in range(400)]
    for host in hosts:
        host.max_request_milli, host.memory_bytes = (1000, 1) if host.index % 2 else (0, 9)
    monkeypatch.setattr(HostCapacity, "fits", fits)
    monkeypatch.setattr(HostCapacity, "__eq__", equals)
    grown = GrownHosts()
    for host in hosts:
        grown.add(host)
    grown.update_maximum()
    for fgpu in (250, 500, 1000):
        for _ in range(len(hosts)):
            assert not grown.fits(Shape(1, 9, fgpu))
    assert looks <= 3 * len(hosts)
