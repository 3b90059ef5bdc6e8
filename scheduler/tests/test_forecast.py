"""When those who wait are said to start.

Each property was seen to fail under the faults named, planted in the product and taken out again:

| property (test_...) | planted fault |
|---|---|
| every_estimate_is_what | ends free no limits; no new head after one has started;|
| | who was refused once is never asked again; an end to the look-ahead after a few starts |
| who_was_head_and_is_limited_now | the room stays kept for a head that has become limited |
"""

from dataclasses import replace

from hypothesis import given

from accounts.limits import Amounts, Limits
from scheduler import placement
from scheduler.simulator import simulate
from scheduler.terms import Owner, Running, Snapshot
from scheduler.tests.timelines import FOREVER, HOUR, at, job, many, worlds
from scheduler.tests.worlds import NOW, UNLIMITED, make_host, make_request, make_snapshot, plan


@many
@given(worlds(queue=20))
def test_every_estimate_is_what_then_happens_if_bounds_are_kept(world: Snapshot) -> None:
    starts = simulate(world, [job(request) for request in world.queue]).starts
    for waiting in plan(world).waiting:
        start = starts.get(waiting.session_id)
        assert waiting.eta == (start if start is not None and start < NOW + FOREVER else None)
        assert bool(waiting.because) == (waiting.eta is not None)


@many
@given(worlds(queue=20))
def test_a_shorter_look_ahead_gives_fewer_estimates_but_no_other_ones(world: Snapshot) -> None:
    far = {waiting.session_id: waiting for waiting in plan(world).waiting}
    near = placement.plan(world, NOW, look_ahead=1)
    assert near.placements == plan(world).placements
    assert all(
        waiting in (far[waiting.session_id], far[waiting.session_id]._replace(eta=None, because=""))
        for waiting in near.waiting
    )


def test_an_estimate_says_what_falls_free_and_names_nobody() -> None:
    running = tuple(Running(f"r{n}", 2, 1, 1, 1, ((100 + n, 1000),), at(-1), at(1 + n)) for n in range(2))
    queue = [make_request("two", 2000), make_request("one", 1000)._replace(duration=HOUR / 2)]
    waiting = plan(replace(make_snapshot([make_host(1, [0, 0])], queue), running=running)).waiting
    assert [(it.eta, it.because) for it in waiting] == [
        (at(2), "2 fGPU falls free when 2 sessions reach their time limit"),
        (at(1), "1 fGPU falls free when 1 session reaches its time limit"),
    ]


def test_what_depends_on_sessions_without_a_time_limit_has_no_estimate() -> None:
    running = (
        Running("x", 2, 1, 1, 1, ((100, 1000),), at(-1)),
        Running("y", 2, 1, 1, 1, ((101, 1000),), at(-1), at(0.5)),
    )
    queue = [make_request("two", 2000), make_request("one", 1000)]
    waiting = plan(replace(make_snapshot([make_host(1, [0, 0])], queue), running=running)).waiting
    assert [it.eta for it in waiting] == [None, at(0.5)]


def test_who_is_limited_is_told_when_enough_of_their_sessions_have_ended() -> None:
    running = (Running("x", 1, 1, 1, 1, ((100, 1000),), at(-1), at(3)),)
    owner = Owner(limits=Limits(fgpu=1000), used=Amounts(fgpu=1000, sessions=1))
    snapshot = make_snapshot([make_host(1, [0, 1000])], [make_request("a", 1000)], {1: owner, 2: UNLIMITED})
    (waiting,) = plan(replace(snapshot, running=running)).waiting
    assert waiting.eta == at(3)
    assert waiting.because == "by then enough of the sessions that count against the same limit reach their time limit"


def test_who_was_head_and_is_limited_now_keeps_no_room_from_anybody_or_from_itself() -> None:
    hosts = [make_host(1, [1000] * 2), make_host(2, [0], group=2)]
    running = (Running("x", 2, 2, 1, 1, ((200, 1000),), at(-1), at(1)),)
    queue = [
        make_request("first", 1000)._replace(duration=2 * HOUR),
        make_request("head", 1000, group=2),
        make_request("last", 1000)._replace(duration=6 * HOUR),
    ]
    owner = Owner(limits=Limits(sessions=2), used=Amounts())
    snapshot = make_snapshot(hosts, queue, {1: owner, 2: UNLIMITED})
    (waiting,) = plan(replace(snapshot, running=running)).waiting
    assert (waiting.session_id, waiting.reason, waiting.eta) == ("head", "USER_LIMIT", at(2))


def test_whoever_is_past_their_bound_may_end_at_any_moment() -> None:
    running = (Running("x", 2, 1, 1, 1, ((100, 1000),), at(-2), at(-1)),)
    (waiting,) = plan(replace(make_snapshot([make_host(1, [0])], [make_request("a", 1000)]), running=running)).waiting
    assert waiting.eta == NOW
