"""Plans on thousands of small worlds are those of the oracle, which follows the rules by trying everything.

`faults.toml` has the faults by which these and the other tests of the core were seen to fail.
"""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import find_preemption
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD, plan, serve
from scheduler.core.tests.oracle import Group, preemption
from scheduler.core.tests.oracle_hosts import Host
from scheduler.core.tests.oracle_pass import Outcome, Pass, amounts_of, decide
from scheduler.core.tests.oracle_worlds import HOUR, MINUTE, World, random_world
from scheduler.core.types import (
    Association,
    DecayedUsage,
    QueueOrder,
    RunningSession,
    SessionRequest,
    association_of,
    entries_of,
)
from sessions.lifecycle import Reason

PER_SEED = 25


@pytest.mark.parametrize("seed", range(80))
def test_plans_are_those_of_the_oracle(seed: int) -> None:
    for number in range(PER_SEED):
        world = random_world(Random(1000 * seed + number))
        snapshot, where = world.snapshot(), f"world {1000 * seed + number}"
        expected = decide(snapshot, world.now)
        found = plan(snapshot, world.now)
        assert [tuple(it) for it in found.placements] == placements_of(expected), where
        assert [(it.session_id, it.reason) for it in found.waiting] == expected.waiting, where
        assert {it.session_id: it.eta for it in found.waiting if it.eta is not None} == expected.starts, where
        cluster = ClusterState(snapshot)
        serve(cluster, entries_of(snapshot.queue), snapshot.rules, world.now)
        assert reserved_in(cluster) == reserved_of(expected), where


def test_worlds_have_every_case() -> None:
    seen: Counter[str] = Counter()
    for number in range(1000):
        world = random_world(Random(number))
        snapshot = world.snapshot()
        expected = decide(snapshot, world.now)
        seen["start"] += len(expected.started)
        for request in snapshot.queue:
            hosts = {it.host_id for it in expected.started if it.session_id in request.member_ids}
            seen[f"cluster {request.mode} on several hosts" if len(hosts) > 1 else "cluster on one host"] += bool(hosts)
        seen["estimate"] += len(expected.starts)
        seen.update(reason for _, reason in expected.waiting)
        for group in expected.left.groups.values():
            if group.reserved is not None:
                kind = "whole host" if group.reserved.at is None else "reservation"
                seen[kind] += 1
                seen[f"several: {kind}"] += len(group.reserved.parts) > 1
            waiting = [it for it in snapshot.queue if it.group_id == group.id]
            seen["preemption"] += any(preemption(group, it, world.now) is not None for it in waiting)
    cases = {"start", "estimate", "whole host", "reservation", "preemption", Reason.USER_LIMIT, Reason.PROJECT_LIMIT}
    cases |= {Reason.NO_HOST, Reason.RESERVED, Reason.NO_STORAGE, Reason.NO_SUITABLE_HOST, Reason.NO_CAPACITY}
    cases |= {"cluster on one host", "cluster any on several hosts", "cluster spread on several hosts"}
    cases |= {"several: whole host", "several: reservation"}
    assert {case: seen[case] for case in cases if seen[case] < 10} == {}


def placements_of(expected: Outcome) -> list[tuple[object, ...]]:
    return [(it.session_id, it.host_id, it.shares) for it in expected.started]


def reserved_in(cluster: ClusterState) -> dict[int, tuple[object, ...]]:
    """Return by group the first in line, with the host and the time reserved for it."""
    return {
        group_id: (
            group.head.id,
            [host.host_id for host in group.reserved_hosts],
            group.reservation and group.reservation.at,
        )
        for group_id, group in cluster.groups.items()
        if group.head is not None
    }


def reserved_of(expected: Outcome) -> dict[int, tuple[object, ...]]:
    """As `reserved_in`, by the oracle."""
    return {
        group.id: (
            group.head.id,
            [part.host.view.id for part in group.reserved.parts] if group.reserved else [],
            group.reserved and group.reserved.at,
        )
        for group in expected.left.groups.values()
        if group.head is not None
    }


@pytest.mark.parametrize("seed", range(40))
def test_histories_are_those_of_the_oracle(seed: int) -> None:
    for number in range(4):
        where = 1000 * seed + number
        random = Random(where)
        world = random_world(random)
        state = IncrementalState(world.snapshot())
        for step in range(8):
            expected = decide(world.snapshot(), world.now)
            found = state.serve(world.now)
            assert {tuple(it) for it in found} == {*placements_of(expected)}, (where, step)
            assert {name: it.at for name, it in state.starts(world.now, LOOK_AHEAD).items()} == expected.starts, where
            for session in expected.started:
                world.waiting.pop(session.session_id, None)
                world.running[session.session_id] = session
            assert state.requests.keys() == world.waiting.keys()
            if random.random() < 0.3:
                state = state.copy()
            for _ in range(random.randint(0, 3)):
                random.choice((submit, end, end, cancel, change, wait))(world, state)


def submit(world: World, state: IncrementalState) -> None:
    state.add(world.submit())


def cancel(world: World, state: IncrementalState) -> None:
    if world.waiting:
        name = world.random.choice(sorted(world.waiting))
        del world.waiting[name]
        state.remove(name)


def wait(world: World, state: IncrementalState) -> None:
    world.now += world.random.choice((1, 15, 60, 90)) * MINUTE


def end(world: World, state: IncrementalState) -> None:
    """Let a session end; what it has used counts on."""
    if not world.running:
        return
    gone = world.running.pop(world.random.choice(sorted(world.running)))
    state.update([gone], [])
    group_id = state.cluster.group_of[gone.host_id]
    seconds = (world.now - gone.started_at).total_seconds() * gone.charge_percent / 100
    before = world.used.get((group_id, association_of(gone)), DecayedUsage(0, 0, 0, world.now))
    cpu, memory, fgpu = (
        amount + seconds * held for amount, held in zip(before[:3], amounts_of(gone), strict=True)
    )  # not decayed: any figure will do
    used = {(group_id, association_of(gone)): DecayedUsage(cpu, memory, fgpu, world.now)}
    world.used |= used
    state.cluster.set_used(used)


def change(world: World, state: IncrementalState) -> None:
    """Move the end of a session, or have it hold something else."""
    if not world.running:
        return
    was = world.running[world.random.choice(sorted(world.running))]
    now = was._replace(
        ends_at=None if was.ends_at is None else was.ends_at + world.random.choice((-15, 30)) * MINUTE,
        cpu=world.random.choice((was.cpu, max(0, was.cpu - 1))),
    )
    world.running[was.session_id] = now
    state.update([was], [now])


@pytest.mark.parametrize("seed", range(40))
def test_preemptions_are_those_of_the_oracle(seed: int) -> None:
    for number in range(PER_SEED):
        world = random_world(Random(1000 * seed + number))
        snapshot, where = world.snapshot(), f"world {1000 * seed + number}"
        state = Pass(snapshot, world.now)
        state.serve(snapshot.queue)
        cluster = ClusterState(snapshot)
        _, left = serve(cluster, entries_of(snapshot.queue), snapshot.rules, world.now)
        candidates = Candidates(cluster.running_sessions())
        for request in left:
            if request.group_id in cluster.groups and not request.shape.spans_hosts:
                found = find_preemption(cluster.groups[request.group_id], request, candidates, world.now)
                expected = preemption(state.groups[request.group_id], request, world.now)
                if expected is None or found is None:
                    assert (found, expected) == (None, None), where
                    continue
                group = state.groups[request.group_id]
                ((_, host_id, shares),) = found.placed
                victims = [group.running[name] for name in found.victim_ids]
                lost = sum((world.now - it.started_at for it in victims), timedelta())
                assert (host_id, len(victims), lost) == (expected.host_id, expected.count, expected.lost), where
                assert is_room(group.host(host_id), group, victims, request, shares), where


def is_room(
    host: Host,
    group: Group,
    victims: list[RunningSession],
    request: SessionRequest,
    shares: tuple[tuple[int, int], ...],
) -> bool:
    """Return whether a request has its shares once its victims, and those who end for others, have ended."""
    later = host.copy()
    ending = [it for it in group.running.values() if it.host_id == host.view.id and it.preempted_for]
    for one in [*victims, *ending]:
        later.add(one, 1)
    places = {gpu.id: place for place, gpu in enumerate(host.view.gpus)}
    left = later.after(request.shape, {places[gpu_id]: milli for gpu_id, milli in shares})
    whole = [milli for _, milli in shares if milli == host.capacity]
    if request.members == 1:
        is_split = len(shares) - len(whole) <= 1
    else:
        is_split = request.shares_gpus or len(shares) * request.shape.member_milli >= request.fgpu_milli
    is_split = is_split and sum(milli for _, milli in shares) == request.fgpu_milli
    return later.fits(request.shape) and is_split and all(left.free[places[gpu_id]] >= 0 for gpu_id, _ in shares)


@pytest.mark.parametrize("seed", range(16))
def test_reserved_amounts_are_covered_once_they_are_free(seed: int) -> None:
    for number in range(PER_SEED):
        world = random_world(Random(1000 * seed + number))
        snapshot = world.snapshot()
        cluster, groups = ClusterState(snapshot), Pass(snapshot, world.now).groups
        sessions = [*snapshot.running]
        for session in sessions:
            group = groups[cluster.group_of[session.host_id]]
            later = [it for it in sessions if it is not session and world.random.random() < 0.3]
            host = group.host(session.host_id).copy()
            for other in later:
                if other.host_id == session.host_id:
                    host.add(other, 1)
            mine = [place for place, gpu in enumerate(host.view.gpus) if gpu.id in dict(session.shares)]
            is_covered = min([host.cpu, host.memory, *(host.free[place] for place in mine)]) >= 0
            assert cluster.covers(session, later) == is_covered, f"world {1000 * seed + number}"


@pytest.mark.parametrize("seed", range(16))
def test_orders_are_those_of_the_oracle(seed: int) -> None:
    for number in range(PER_SEED):
        world = random_world(Random(1000 * seed + number))
        snapshot = world.snapshot()
        state, oracle = IncrementalState(snapshot), Pass(snapshot, world.now)
        waiting = [*oracle.in_order(entries_of(snapshot.queue))]
        for group_id in oracle.groups:
            expected = [it.id for it in waiting if it.group_id == group_id]
            assert [it.id for it in state.in_order(group_id, world.now, 99)] == expected
            assert [it.id for it in state.in_order(group_id, world.now, 2)] == expected[:2]
            once = [*dict.fromkeys(expected)]
            for position, name in enumerate(once):
                ahead = state.ahead_of(name, world.now, group_id)
                assert sorted(it.id for it in ahead) == sorted(once[:position])


def test_a_copy_has_what_ended_sessions_have_used() -> None:
    world = next(it for it in map(random_world, map(Random, range(99))) if has_fair_session(it))
    cluster = ClusterState(world.snapshot())
    group_id = next(it for it, rules in world.rules.items() if rules.queue_order == QueueOrder.FAIR)
    shares = cluster.fair_shares(group_id)
    assert shares is not None
    for name in list(cluster.groups[group_id].running):
        cluster.end(group_id, name, world.now)
    later, copied = world.now + HOUR, cluster.copy().fair_shares(group_id)
    assert copied is not None
    holders = [Association(project, user) for project in (0, 7, 8) for user in (1, 2, 3)]
    assert [copied.use(it, later) for it in holders] == [shares.use(it, later) for it in holders]
    assert any(shares.use(it, later) for it in holders)


def has_fair_session(world: World) -> bool:
    groups = {group for group, rules in world.rules.items() if rules.queue_order == QueueOrder.FAIR}
    return any(it.group_id in groups and one.host_id == it.id for it in world.hosts for one in world.running.values())
