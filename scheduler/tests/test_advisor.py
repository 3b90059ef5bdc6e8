"""Advice before launching.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| the_advice_is_what_happens | the request asked about is served first |
| an_alternative_that_starts_now_does | every other group is offered; limits are ignored for less fGPU |
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from scheduler.advice.advisor import Advice, Alternative, SessionAdvice, Starts, advise
from scheduler.core.tests.timelines import FOREVER, at, in_several, job, random_waiting, worlds
from scheduler.core.tests.worlds import NOW, make_host, make_request, make_snapshot
from scheduler.core.types import LimitHolder, RunningSession, SessionRequest, Snapshot
from scheduler.simulation.simulator import simulate

thousand = settings(max_examples=1000, deadline=None)


def what_happens(world: Snapshot, requests: Sequence[SessionRequest]) -> list[Starts]:
    """Return the starts of `requests` if they join now, all sessions run to their bounds, and no other joins."""
    starts = simulate(world, [job(one) for one in (*world.queue, *requests)]).starts
    found: list[Starts] = []
    for request in requests:
        start = starts.get(request.id)
        is_known = start is not None and start < NOW + FOREVER
        found.append(("now" if start == NOW else start) if is_known else None)
    return found


def several(request: SessionRequest, count: int) -> list[SessionRequest]:
    others = request.alternatives
    return [
        request._replace(id=name, alternatives=tuple(each._replace(id=name) for each in others))
        for name in (f"mine-{number}" for number in range(count))
    ]


@thousand
@given(worlds(queue=12, several=0.2), st.randoms(use_true_random=True))
def test_the_advice_is_what_happens(world: Snapshot, random: Random) -> None:
    request = random_waiting(random, "mine-0", 0.2)._replace(priority=random.choice((0, 0, 1)))
    if random.random() < 1 / 3:
        request = in_several(random, request)
    requests = several(request, random.choice((1, 1, 2, 4)))
    assert [each.starts for each in advise(world, requests, NOW).sessions] == what_happens(world, requests)


@thousand
@given(worlds(queue=12, several=0.2), st.randoms(use_true_random=True))
def test_an_alternative_that_starts_now_does(world: Snapshot, random: Random) -> None:
    request = random_waiting(random, "mine-0", 0.2)._replace(priority=random.choice((0, 0, 1)))
    count = random.choice((1, 1, 2, 4))
    advice = advise(world, several(request, count), NOW, elsewhere=[request._replace(group_id=3 - request.group_id)])
    for group_id, cpu, memory_bytes, fgpu_milli, starts in advice.alternatives:
        changed = request._replace(group_id=group_id, cpu=cpu, memory_bytes=memory_bytes, fgpu_milli=fgpu_milli)
        assert changed != request
        if starts == "now":
            assert what_happens(world, several(changed, count)) == ["now"] * count
        else:
            assert isinstance(starts, datetime)
            assert advice.last.starts is None or starts < advice.last.starts  # type: ignore[operator]


def test_less_fgpu_and_another_group_are_offered() -> None:
    hosts = [make_host(1, [350, 0]), make_host(2, [0], group=2), make_host(3, [1000], group=3)]
    running = (
        RunningSession("x", 2, 2, 1, 1, ((200, 1000),), at(-1), at(1)),
        RunningSession("y", 2, 1, 1, 1, ((101, 1000),), at(-1), at(2)),
    )
    snapshot = replace(make_snapshot(hosts, [make_request("a", 1000, group=4)]), running=running)
    request = make_request("mine", 500)
    advice = advise(snapshot, [request], NOW, elsewhere=[request._replace(group_id=group) for group in (2, 3, 4)])
    reason = "Waiting for 0.5 fGPU on one GPU: the most that is free on a single GPU is 0.35."
    eta_reason = "0.5 fGPU falls free when 1 session reaches its time limit"
    amounts = request.cpu, request.memory_bytes
    assert advice == Advice(
        sessions=(SessionAdvice(at(2), reason, eta_reason),),
        alternatives=(
            Alternative(1, *amounts, 350, "now"),
            Alternative(3, *amounts, 500, "now"),
            Alternative(2, *amounts, 500, at(1)),
        ),
    )


def test_sessions_that_start_and_wait_are_distinguished() -> None:
    running = (RunningSession("x", 2, 1, 1, 1, ((100, 100),), at(-1), at(2)),)
    snapshot = replace(make_snapshot([make_host(1, [900, 1000])], []), running=running)
    advice = advise(snapshot, several(make_request("mine", 950), 2), NOW)
    assert [each.starts for each in advice.sessions] == ["now", at(2)]
    assert advice.last.reason == "Waiting for 0.95 fGPU on one GPU: the most that is free on a single GPU is 0.9."
    assert [(each.fgpu_milli, each.starts) for each in advice.alternatives] == [(900, "now")]


def test_the_resource_that_is_short_is_named() -> None:
    host = make_host(1, [1000], cpu=2)
    running = (RunningSession("x", 2, 1, 6, 1, (), at(-1), at(2)),)
    advice = advise(replace(make_snapshot([host], []), running=running), [make_request("mine", 500, cpu=4)], NOW)
    assert advice.last.reason == "Waiting for 4 CPU cores on one host: at most 2 are free."
    assert advice.last.eta_reason == "4 CPU cores fall free when 1 session reaches its time limit"
    assert [(each.cpu, each.fgpu_milli) for each in advice.alternatives] == [(2, 500)]


def test_alternatives_are_within_the_users_limits() -> None:
    owner = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts(fgpu=800, sessions=1))
    snapshot = make_snapshot([make_host(1, [1000])], [], {1: owner})
    request = make_request("mine", 500)
    advice = advise(snapshot, [request], NOW)
    assert advice.last.starts is None
    assert advice.last.reason.startswith("Your policy allows 1 fGPU at once")
    assert advice.alternatives == (Alternative(1, request.cpu, request.memory_bytes, 200, "now"),)


def test_a_start_now_has_no_reason() -> None:
    advice = advise(make_snapshot([make_host(1, [1000])], []), [make_request("mine", 1000)], NOW)
    assert advice == Advice(sessions=(SessionAdvice("now"),))
