"""When those who wait are said to start.

Each property was seen to fail under the faults named, planted in the product and taken out again:

| property (test_...) | planted fault |
|---|---|
| every_estimate_is_what | ends free no limits; no new head after one has started;|
| | who was refused once is never asked again; an end to the look-ahead after a few starts |
| who_was_head_and_is_limited_now | the room stays kept for a head that has become limited |
| room_kept_for_somebody_limited | the same; those who wait do not hear of the room |
| room_kept_for_whoever_was_first | those who wait do not hear of the room |
| the_first_in_line_starts | those behind take from the kept room what they like; it is not kept; the shadow of |
| | the kept room forgets who passed |
"""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from scheduler.core import placement
from scheduler.core.cluster_state import ClusterState
from scheduler.core.tests.timelines import FOREVER, HOUR, at, job, many, random_waiting, worlds
from scheduler.core.tests.worlds import NOW, UNLIMITED, make_host, make_request, make_snapshot, plan
from scheduler.core.types import LimitHolder, RunningSession, Snapshot
from scheduler.simulation.simulator import Job, simulate


@many
@given(worlds(queue=20))
def test_every_estimate_is_what_then_happens_if_bounds_are_kept(world: Snapshot) -> None:
    starts = simulate(world, [job(request) for request in world.queue]).starts
    for waiting in plan(world).waiting:
        start = starts.get(waiting.session_id)
        assert waiting.eta == (start if start is not None and start < NOW + FOREVER else None)
        assert bool(waiting.eta_reason) == (waiting.eta is not None)


@many
@given(worlds(queue=20))
def test_a_shorter_look_ahead_gives_fewer_estimates_but_no_other_ones(world: Snapshot) -> None:
    far = {waiting.session_id: waiting for waiting in plan(world).waiting}
    near = placement.plan(world, NOW, look_ahead=1)
    assert near.placements == plan(world).placements
    assert all(
        waiting in (far[waiting.session_id], far[waiting.session_id]._replace(eta=None, eta_reason=""))
        for waiting in near.waiting
    )


@many
@given(worlds(limited=False, unbounded=0.3), st.randoms(use_true_random=True))
def test_the_first_in_line_starts_by_what_it_was_told_whoever_joins_behind_and_however_early_others_end(
    world: Snapshot, random: Random
) -> None:
    cluster = ClusterState(world)
    placement.serve(cluster, world.queue, world.rules, NOW)
    kept = [(group.head, group.reservation) for group in cluster.groups.values() if group.head and group.reservation]
    promised = {head.id: reservation.at for head, reservation in kept if reservation.at}
    etas = {waiting.session_id: waiting.eta for waiting in plan(world).waiting}
    assert promised == {name: etas[name] for name in promised}
    late = [random_waiting(random, f"late{n}", 0.3)._replace(queued_at=at(random.randint(0, 20) / 4)) for n in range(9)]
    early = [Job(request, random.random() * job(request).runs_for) for request in (*world.queue, *late)]
    starts = simulate(world, early).starts
    assert all(starts[name] <= moment for name, moment in promised.items())


def test_who_is_not_first_may_start_later_than_told_as_who_joins_later_takes_what_is_free() -> None:
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


def test_an_estimate_says_what_falls_free_and_names_nobody() -> None:
    running = tuple(RunningSession(f"r{n}", 2, 1, 1, 1, ((100 + n, 1000),), at(-1), at(1 + n)) for n in range(2))
    queue = [make_request("two", 2000), make_request("one", 1000)._replace(duration=HOUR / 2)]
    waiting = plan(replace(make_snapshot([make_host(1, [0, 0])], queue), running=running)).waiting
    assert [(it.eta, it.eta_reason) for it in waiting] == [
        (at(2), "2 fGPU falls free when 2 sessions reach their time limit"),
        (at(1), "1 fGPU falls free when 1 session reaches its time limit"),
    ]


def test_what_depends_on_sessions_without_a_time_limit_has_no_estimate() -> None:
    running = (
        RunningSession("x", 2, 1, 1, 1, ((100, 1000),), at(-1)),
        RunningSession("y", 2, 1, 1, 1, ((101, 1000),), at(-1), at(0.5)),
    )
    queue = [make_request("two", 2000), make_request("one", 1000)]
    waiting = plan(replace(make_snapshot([make_host(1, [0, 0])], queue), running=running)).waiting
    assert [it.eta for it in waiting] == [None, at(0.5)]


def test_who_is_limited_is_told_when_enough_of_their_sessions_have_ended() -> None:
    running = (RunningSession("x", 1, 1, 1, 1, ((100, 1000),), at(-1), at(3)),)
    owner = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts(fgpu=1000, sessions=1))
    snapshot = make_snapshot([make_host(1, [0, 1000])], [make_request("a", 1000)], {1: owner, 2: UNLIMITED})
    (waiting,) = plan(replace(snapshot, running=running)).waiting
    assert waiting.eta == at(3)
    assert (
        waiting.eta_reason == "by then enough of the sessions that count against the same limit reach their time limit"
    )


def test_who_was_head_and_is_limited_now_keeps_no_room_from_anybody_or_from_itself() -> None:
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


def test_room_kept_for_whoever_was_first_is_given_away_when_another_comes_first() -> None:
    hosts = [make_host(1, [1000, 0]), make_host(2), make_host(3, [0] * 3)]
    running = (
        RunningSession("x", 2, 1, 1, 1, ((101, 1000),), at(-1), at(3)),
        RunningSession("y", 3, 2, 1, 1, (), at(-1), at(1)),  # bars the one who comes first once it has ended
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


def test_room_kept_for_somebody_limited_by_now_is_given_away_whoever_else_waits() -> None:
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


def test_whoever_is_past_their_bound_may_end_at_any_moment() -> None:
    running = (RunningSession("x", 2, 1, 1, 1, ((100, 1000),), at(-2), at(-1)),)
    (waiting,) = plan(replace(make_snapshot([make_host(1, [0])], [make_request("a", 1000)]), running=running)).waiting
    assert waiting.eta == NOW
