"""Advice before launching.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| the_advice_is_what_happens | the request asked about is served first |
| an_alternative_that_starts_now_does | every other group is offered; limits are ignored for less fGPU |
"""

from dataclasses import replace
from datetime import datetime
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from scheduler.advisor import Advice, Alternative, Starts, advise
from scheduler.core.tests.timelines import FOREVER, at, job, random_waiting, worlds
from scheduler.core.tests.worlds import NOW, make_host, make_request, make_snapshot
from scheduler.core.types import LimitHolder, RunningSession, SessionRequest, Snapshot
from scheduler.simulation.simulator import simulate

thousand = settings(max_examples=1000, deadline=None)


def what_happens(world: Snapshot, request: SessionRequest) -> Starts:
    """Return the start of `request` if it joins now, all sessions run to their bounds, and no other joins."""
    start = simulate(world, [job(one) for one in (*world.queue, request)]).starts.get(request.id)
    if start is None or start >= NOW + FOREVER:
        return None
    return "now" if start == NOW else start


@thousand
@given(worlds(queue=12), st.randoms(use_true_random=True))
def test_the_advice_is_what_happens(world: Snapshot, random: Random) -> None:
    request = random_waiting(random, "mine", 0.2)._replace(priority=random.choice((0, 0, 1)))
    assert advise(world, request, NOW).starts == what_happens(world, request)


@thousand
@given(worlds(queue=12), st.randoms(use_true_random=True))
def test_an_alternative_that_starts_now_does(world: Snapshot, random: Random) -> None:
    request = random_waiting(random, "mine", 0.2)._replace(priority=random.choice((0, 0, 1)))
    other = 3 - request.group_id
    advice = advise(world, request, NOW, other_group_ids=[other])
    for alternative in advice.alternatives:
        assert (alternative.group_id, alternative.fgpu_milli) != (request.group_id, request.fgpu_milli)
        changed = request._replace(group_id=alternative.group_id, fgpu_milli=alternative.fgpu_milli)
        if alternative.starts == "now":
            assert what_happens(world, changed) == "now"
        else:
            assert isinstance(alternative.starts, datetime)
            assert advice.starts is None or alternative.starts < advice.starts  # type: ignore[operator]


def test_less_fgpu_and_another_group_are_offered() -> None:
    hosts = [make_host(1, [350, 0]), make_host(2, [0], group=2), make_host(3, [1000], group=3)]
    running = (
        RunningSession("x", 2, 2, 1, 1, ((200, 1000),), at(-1), at(1)),
        RunningSession("y", 2, 1, 1, 1, ((101, 1000),), at(-1), at(2)),
    )
    snapshot = replace(make_snapshot(hosts, [make_request("a", 1000, group=4)]), running=running)
    advice = advise(snapshot, make_request("mine", 500), NOW, other_group_ids=[2, 3, 4])
    assert advice == Advice(
        starts=at(2),
        reason="Waiting for 0.5 fGPU on one GPU: the most that is free on a single GPU is 0.35.",
        eta_reason="0.5 fGPU falls free when 1 session reaches its time limit",
        alternatives=(Alternative(1, 350, "now"), Alternative(3, 500, "now"), Alternative(2, 500, at(1))),
    )


def test_alternatives_are_within_the_users_limits() -> None:
    owner = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts(fgpu=800, sessions=1))
    snapshot = make_snapshot([make_host(1, [1000])], [], {1: owner})
    advice = advise(snapshot, make_request("mine", 500), NOW)
    assert advice.starts is None
    assert advice.reason.startswith("Your policy allows 1 fGPU at once")
    assert advice.alternatives == (Alternative(1, 200, "now"),)


def test_a_start_now_has_no_reason() -> None:
    assert advise(make_snapshot([make_host(1, [1000])], []), make_request("mine", 1000), NOW) == Advice(starts="now")
