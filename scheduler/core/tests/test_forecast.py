"""Estimated starts of waiting requests.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| estimates_hold_if_sessions_run_to_their_bounds | ends free no limits; no new head after one has started; |
| | a refused request is never evaluated again; the forecast stops after a few starts |
| a_head_above_its_limit_loses_its_reservation | a head above its limit keeps its reservation |
| a_limited_heads_reservation_is_released_to_others | the same; its host is not offered to the others |
| the_old_heads_reservation_is_released_to_others | the host of the old reservation is not offered to the others |
| the_head_never_starts_after_its_estimate | backfill takes anything; no host is reserved; |
| | the shadow ignores backfilled sessions |
"""

from dataclasses import replace
from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from scheduler.core import placement
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.tests.timelines import FOREVER, HOUR, at, job, many, random_waiting, worlds
from scheduler.core.tests.worlds import NOW, UNLIMITED, make_host, make_request, make_snapshot, plan
from scheduler.core.types import OVERDUE_GRACE, LimitHolder, RunningSession, Snapshot
from scheduler.simulation.simulator import Job, simulate


@many
@given(worlds(queue=20))
def test_estimates_hold_if_sessions_run_to_their_bounds(world: Snapshot) -> None:
    starts = simulate(world, [job(request) for request in world.queue]).starts
    for waiting in plan(world).waiting:
        start = starts.get(waiting.session_id)
        assert waiting.eta == (start if start is not None and start < NOW + FOREVER else None)
        assert bool(waiting.eta_reason) == (waiting.eta is not None)


@many
@given(worlds(queue=20))
def test_a_shorter_look_ahead_only_omits_estimates(world: Snapshot) -> None:
    far = {waiting.session_id: waiting for waiting in plan(world).waiting}
    near = placement.plan(world, NOW, look_ahead=1)
    assert near.placements == plan(world).placements
    assert all(
        waiting in (far[waiting.session_id], far[waiting.session_id]._replace(eta=None, eta_reason=""))
        for waiting in near.waiting
    )


@many
@given(worlds(limited=False, unbounded=0.3), st.randoms(use_true_random=True))
def test_the_head_never_starts_after_its_estimate(world: Snapshot, random: Random) -> None:
    cluster = ClusterState(world)
    placement.serve(cluster, world.queue, world.rules, NOW)
    reserved = [
        (group.head, group.reservation) for group in cluster.groups.values() if group.head and group.reservation
    ]
    promised = {head.id: reservation.at for head, reservation in reserved if reservation.at}
    etas = {waiting.session_id: waiting.eta for waiting in plan(world).waiting}
    assert promised == {name: etas[name] for name in promised}
    late = [random_waiting(random, f"late{n}", 0.3)._replace(queued_at=at(random.randint(0, 20) / 4)) for n in range(9)]
    early = [Job(request, random.random() * job(request).runs_for) for request in (*world.queue, *late)]
    starts = simulate(world, early).starts
    assert all(starts[name] <= moment for name, moment in promised.items())


def test_later_requests_may_delay_all_but_the_head() -> None:
    running = (
        RunningSession("a", 2, 1, 1, 1, ((100, 1000), (101, 1000)), at(-1), at(1)),
        RunningSession("b", 2, 2, 1, 1, ((200, 1000),), at(-1), at(2)),
    )
    queue = [make_request(name, 2000)._replace(duration=8 * HOUR) for name in ("first", "second")]
    world = replace(make_snapshot([make_host(1, [0, 0]), make_host(2, [0, 1000])], queue), running=running)
    assert [waiting.eta for waiting in plan(world).waiting] == [at(1), at(2)]
    joins = make_request("joins", 1000)._replace(queued_at=at(0.5), duration=5 * HOUR)
    starts = simulate(world, [job(request) for request in (*queue, joins)]).starts
    assert starts == {"joins": at(0.5), "first": at(1), "second": at(5.5)}


def test_the_eta_reason_names_amounts_but_no_user() -> None:
    running = tuple(RunningSession(f"r{n}", 2, 1, 1, 1, ((100 + n, 1000),), at(-1), at(1 + n)) for n in range(2))
    queue = [make_request("two", 2000), make_request("one", 1000)._replace(duration=HOUR / 2)]
    waiting = plan(replace(make_snapshot([make_host(1, [0, 0])], queue), running=running)).waiting
    assert [(it.eta, it.eta_reason) for it in waiting] == [
        (at(2), "2 fGPU falls free when 2 sessions reach their time limit"),
        (at(1), "1 fGPU falls free when 1 session reaches its time limit"),
    ]


def test_unbounded_sessions_leave_no_estimate() -> None:
    running = (
        RunningSession("x", 2, 1, 1, 1, ((100, 1000),), at(-1)),
        RunningSession("y", 2, 1, 1, 1, ((101, 1000),), at(-1), at(0.5)),
    )
    queue = [make_request("two", 2000), make_request("one", 1000)]
    waiting = plan(replace(make_snapshot([make_host(1, [0, 0])], queue), running=running)).waiting
    assert [it.eta for it in waiting] == [None, at(0.5)]


def test_a_limited_request_is_estimated_by_its_owners_ends() -> None:
    running = (RunningSession("x", 1, 1, 1, 1, ((100, 1000),), at(-1), at(3)),)
    owner = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts(fgpu=1000, sessions=1))
    snapshot = make_snapshot([make_host(1, [0, 1000])], [make_request("a", 1000)], {1: owner, 2: UNLIMITED})
    (waiting,) = plan(replace(snapshot, running=running)).waiting
    assert waiting.eta == at(3)
    assert (
        waiting.eta_reason == "by then enough of the sessions that count against the same limit reach their time limit"
    )


def test_a_head_above_its_limit_loses_its_reservation() -> None:
    hosts = [make_host(1, [1000] * 2), make_host(2, [0], group=2)]
    running = (RunningSession("x", 2, 2, 1, 1, ((200, 1000),), at(-1), at(1)),)
    queue = [
        make_request("first", 1000)._replace(duration=2 * HOUR),
        make_request("head", 1000, group=2),
        make_request("last", 1000)._replace(duration=6 * HOUR),
    ]
    owner = LimitHolder(limits=PolicyLimits(sessions=2), used=Amounts())
    snapshot = make_snapshot(hosts, queue, {1: owner, 2: UNLIMITED})
    (waiting,) = plan(replace(snapshot, running=running)).waiting
    assert (waiting.session_id, waiting.reason, waiting.eta) == ("head", "USER_LIMIT", at(2))


def test_the_old_heads_reservation_is_released_to_others() -> None:
    hosts = [make_host(1, [1000, 0]), make_host(2), make_host(3, [0] * 3)]
    running = (
        RunningSession("x", 2, 1, 1, 1, ((101, 1000),), at(-1), at(3)),
        RunningSession("y", 3, 2, 1, 1, (), at(-1), at(1)),  # uses up the limit of the first request until it ends
        RunningSession("z", 2, 3, 1, 1, tuple((300 + n, 1000) for n in range(3)), at(-1), at(6)),
    )
    queue = [
        make_request("limited", 3000, owner=3),
        make_request("first", 2000),
        make_request("passes", 1000)._replace(duration=5 * HOUR),
    ]
    owner = LimitHolder(limits=PolicyLimits(sessions=1), used=Amounts(sessions=1))
    world = replace(make_snapshot(hosts, queue, {2: UNLIMITED, 3: owner}), running=running)
    assert {it.session_id: it.eta for it in plan(world).waiting} == {"limited": at(6), "first": at(6), "passes": at(1)}
    assert simulate(world, [job(request) for request in queue]).starts == {
        "limited": at(6),
        "first": at(6),
        "passes": at(1),
    }


def test_a_limited_heads_reservation_is_released_to_others() -> None:
    hosts = [make_host(1, [1000, 0]), make_host(2, [0], group=2)]
    running = (
        RunningSession("x", 2, 1, 1, 1, ((101, 1000),), at(-1), at(3)),
        RunningSession("y", 2, 2, 1, 1, ((200, 1000),), at(-1), at(1)),
    )
    queue = [
        make_request("elsewhere", 1000, group=2)._replace(duration=9 * HOUR),
        make_request("first", 2000),
        make_request("too large", 3000, owner=2),
        make_request("passes", 1000, owner=2)._replace(duration=5 * HOUR),
    ]
    owner = LimitHolder(limits=PolicyLimits(sessions=1), used=Amounts())
    world = replace(make_snapshot(hosts, queue, {1: owner}), running=running)
    etas = {"elsewhere": at(1), "first": at(10), "too large": None, "passes": at(1)}
    assert {it.session_id: it.eta for it in plan(world).waiting} == etas
    starts = simulate(world, [job(request) for request in queue]).starts
    assert starts == {name: eta for name, eta in etas.items() if eta is not None}


def test_overdue_sessions_may_end_at_any_moment_within_the_grace() -> None:
    running = (RunningSession("x", 2, 1, 1, 1, ((100, 1000),), at(-2), at(0)),)
    world = replace(make_snapshot([make_host(1, [0])], [make_request("a", 1000)]), running=running)
    assert plan(world, NOW + OVERDUE_GRACE).waiting[0].eta == NOW + OVERDUE_GRACE
    assert plan(world, NOW + OVERDUE_GRACE + timedelta(seconds=1)).waiting[0].eta is None
