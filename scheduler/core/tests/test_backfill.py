"""The head's reservation, and backfill of the requests behind it.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| backfill_never_delays_the_head | any bounded session may use the reserved host; any session may; none is reserved |
| backfilled_sessions_together_leave_the_heads_capacity | a backfilled session is not counted for the next one |
| a_whole_host_reservation_bounds_the_heads_wait | no whole-host reservation; one that begins late; |
| | one that moves to the least lacking host |
"""

from dataclasses import replace
from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.tests.timelines import FOREVER, HOUR, at, job, many, random_waiting, worlds
from scheduler.core.tests.worlds import (
    NOW,
    UNLIMITED,
    explanations,
    make_host,
    make_request,
    make_snapshot,
    placed,
    plan,
)
from scheduler.core.types import LimitHolder, Rules, RunningSession, Snapshot
from scheduler.simulation.simulator import Job, simulate

MINUTE = timedelta(minutes=1)


@many
@given(worlds(limited=False, unbounded=0.3), st.randoms(use_true_random=True))
def test_backfill_never_delays_the_head(world: Snapshot, random: Random) -> None:
    waiting = plan(world).waiting
    heads = [entry for entry in waiting if entry.eta is not None][:1]
    for head in heads:
        ids = [request.id for request in world.queue]
        ahead = world.queue[: ids.index(head.session_id) + 1]
        group_id = ahead[-1].group_id
        if any(
            request.group_id == group_id and request.id in {it.session_id for it in waiting} for request in ahead[:-1]
        ):
            continue  # a request ahead of it waits without an estimate
        late = [
            random_waiting(random, f"late{n}", 0.3)._replace(queued_at=at(random.randint(0, 20) / 4)) for n in range(10)
        ]
        alone = simulate(world, [job(request) for request in ahead])
        among = simulate(world, [job(request) for request in (*world.queue, *late)])
        assert among.starts[head.session_id] <= alone.starts[head.session_id] == head.eta


@many
@given(st.randoms(use_true_random=True), st.integers(1, 4))
def test_a_whole_host_reservation_bounds_the_heads_wait(random: Random, hosts: int) -> None:
    longest, step, reservation_delay = 4 * HOUR, 10 * MINUTE, 2 * HOUR
    views = tuple(make_host(n, [1000] * 4) for n in range(1, hosts + 1))
    first = [make_request(f"first{n}", 1000) for n in range(4 * hosts - random.randint(0, 3))]
    head = make_request("head", 4000)
    small = [
        make_request(f"small{n}", random.choice((250, 500, 1000)))._replace(queued_at=NOW + n * step) for n in range(60)
    ]
    world = Snapshot(
        hosts=views, queue=(), owners={1: UNLIMITED}, rules={1: Rules(reservation_delay=reservation_delay)}
    )
    jobs = [Job(request, random.random() * longest) for request in (*first, head, *small)]
    assert simulate(world, jobs).starts["head"] <= NOW + reservation_delay + step + longest


def test_small_sessions_backfill_but_never_delay_a_large_head() -> None:
    hosts = (make_host(1, [1000] * 7 + [0], cpu=64), make_host(2, [1000] * 4 + [0] * 4, cpu=64))
    running = (
        RunningSession("x", 2, 1, 1, 1, ((107, 1000),), at(-1), at(2)),
        *(RunningSession(f"r{n}", 2, 2, 1, 1, ((200 + n, 1000),), at(-1)) for n in range(4, 8)),
    )
    head = make_request("head", 8000)
    small = [make_request(f"small{n}", 1000)._replace(duration=HOUR) for n in range(100)]
    world = make_snapshot(hosts, [head, *small], {2: UNLIMITED})
    world = replace(world, running=running)
    result = plan(world)
    assert len(result.placements) == 11
    assert result.waiting[0].session_id == "head"
    assert result.waiting[0].eta == at(2)
    assert result.waiting[0].eta_reason == "8 fGPU falls free when 8 sessions reach their time limit"
    later = [one._replace(id=f"{one.id}+", queued_at=NOW + n * MINUTE) for n, one in enumerate(small)]
    assert simulate(world, [job(one) for one in (head, *small, *later)]).starts["head"] == at(2)


def test_backfill_needs_an_early_end_or_spare_capacity() -> None:
    host = make_host(1, [1000, 1000, 0, 0])
    running = (RunningSession("x", 2, 1, 1, 1, ((102, 1000), (103, 1000)), at(-1), at(2)),)
    head = make_request("head", 3000)
    long = make_request("long", 500)._replace(duration=3 * HOUR, predicted=HOUR)  # as the others
    more = [
        long._replace(id="longer", fgpu_milli=600, duration=None),
        long._replace(id="short", fgpu_milli=1000, duration=2 * HOUR),
    ]
    result = plan(replace(make_snapshot([host], [head, long, *more]), running=running))
    assert placed(result) == {"long": (1, ((100, 500),)), "short": (1, ((101, 1000),))}
    refused = plan(replace(make_snapshot([host], [head, long, more[0]]), running=running))
    assert explanations(refused)["longer"][0] == "RESERVED"


def test_backfill_gives_a_request_all_that_it_asks_for() -> None:
    """The head could start in time only if the part of the other took its last whole device."""
    running = (RunningSession("x", 2, 1, 1, 1, ((100, 700),), at(-1), at(2)),)
    queue = [make_request("head", 1500), make_request("long", 1200)._replace(duration=None)]
    result = plan(replace(make_snapshot([make_host(1, [300, 1000])], queue), running=running))
    assert placed(result) == {}


def test_backfilled_sessions_together_leave_the_heads_capacity() -> None:
    host = make_host(1, [1000] * 3 + [0] * 3)
    running = (RunningSession("x", 2, 1, 1, 1, tuple((103 + n, 1000) for n in range(3)), at(-1), at(2)),)
    queue = [make_request("head", 4000), *(make_request(name, 1000) for name in "abc")]
    assert list(placed(plan(replace(make_snapshot([host], queue), running=running)))) == ["a", "b"]


def test_a_limited_request_is_not_the_head() -> None:
    limited = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts())
    queue = [make_request("limited", 2000, owner=9), make_request("head", 2000), make_request("long", 1000)]
    running = (RunningSession("x", 2, 1, 1, 1, ((101, 1000),), at(-1), at(1)),)
    result = plan(replace(make_snapshot([make_host(1, [1000, 0])], queue, {9: limited}), running=running))
    assert {name: reason for name, (reason, _) in explanations(result).items()} == {
        "limited": "USER_LIMIT",
        "head": "NO_CAPACITY",
        "long": "RESERVED",
    }


def test_a_whole_host_reservation_takes_the_least_lacking_host() -> None:
    hosts = [make_host(1, [1000, 0, 0]), make_host(2, [1000, 1000, 0]), make_host(3, [1000])]
    queue = [make_request("head", 3000), *(make_request(f"small{n}", 1000) for n in range(4))]
    assert len(placed(plan(make_snapshot(hosts, queue)))) == 4
    held = plan(make_snapshot(hosts, queue), at(1))
    assert sorted(host_id for host_id, _ in placed(held).values()) == [1, 3]
    assert explanations(held)["small3"] == (
        "RESERVED",
        "What it needs is free, but kept for a session that has waited in front of it for too long.",
    )


def test_a_whole_host_reservation_prefers_hosts_without_recent_starts() -> None:
    hosts = [make_host(1, [1000, 0]), make_host(2, [0, 0])]
    running = (
        RunningSession("x", 2, 1, 1, 1, ((101, 1000),), at(1.5)),
        RunningSession("y", 2, 2, 1, 1, ((200, 2000),), at(0.5)),
    )
    queue = [make_request("head", 2000), make_request("small", 1000)]
    assert list(placed(plan(replace(make_snapshot(hosts, queue), running=running), at(2)))) == ["small"]


def test_no_reservation_for_a_request_that_never_fits() -> None:
    queue = [make_request("giant", 9000), make_request("small", 1000)]
    assert list(placed(plan(make_snapshot([make_host(1, [1000, 0])], queue), NOW + FOREVER))) == ["small"]
