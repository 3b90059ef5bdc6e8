"""The advisor tries changed requests without a trace, and offers the largest that starts.

Faults that they are for: what a trial takes of a reservation is not given back; whole GPUs and parts are searched as
one.
"""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import FGPU_STEP, GIB
from scheduler.advice.advisor import Trial, advise
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.tests.timelines import at, random_waiting, worlds
from scheduler.core.tests.worlds import NOW, make_host, make_request, make_snapshot
from scheduler.core.types import LimitHolder, RunningSession, SessionRequest, Shape, Snapshot

LEAST = Shape(1, 1, FGPU_STEP)


def content(cluster: ClusterState) -> object:
    """Return all that decides on starts."""
    free = {
        host.host_id: (host.cpu, host.memory_bytes, host.device_free, host.device_owed, host.is_reserved)
        for group in cluster.groups.values()
        for host in group.copy().capacity.hosts
    }
    heads = [
        (
            group.head,
            held and (held.at, [(it.shape, it.host.host_id, it.shadow and vars_of(it.shadow)) for it in held.parts]),
        )
        for group in cluster.groups.values()
        for held in [group.reservation]
    ]
    limits = [
        (left.cpu, left.memory_bytes, left.fgpu_milli, left.sessions)
        for owner in (1, 2, 3)
        for left in cluster.limits.of(owner, None)
    ]
    return free, heads, limits, {session.session_id for session in cluster.running_sessions()}


def vars_of(shadow: object) -> object:
    return [getattr(shadow, name) for name in ("cpu", "memory_bytes", "device_free", "device_owed")]


def all_start(cluster: ClusterState, requests: list[SessionRequest]) -> bool:
    """Return whether all of these start, on a copy of the state."""
    copy = cluster.copy()
    return all(not copy.limits.are_exceeded_by(request) and copy.place(request, NOW) for request in requests)


@settings(max_examples=300, deadline=None)
@given(worlds(queue=12), st.randoms(use_true_random=True))
def test_trials_leave_no_trace_and_find_the_largest(world: Snapshot, random: Random) -> None:
    if random.random() < 0.3:
        hosts = (replace(host, divides=random.random() < 0.5) for host in world.hosts)
        world = replace(world, hosts=tuple(hosts))
    asked = random_waiting(random, "mine-0", 0.2)._replace(priority=random.choice((0, 0, 1)))
    requests = [asked._replace(id=f"mine-{number}") for number in range(random.choice((1, 1, 2, 3)))]
    state = IncrementalState(world, {queued.id: rank for rank, queued in enumerate((*world.queue, *requests))})
    for request in requests:
        state.add(request)
    placed = {placement.session_id for placement in state.serve(NOW)}
    trial = Trial(state.cluster, requests, NOW)
    trial.withdraw([request for request in requests if request.id in placed])
    before = content(state.cluster)
    trial.starts_as(asked._replace(group_id=3 - asked.group_id))
    offers = list(trial.smaller_requests(LEAST))
    assert content(state.cluster) == before
    for name, step in (("fgpu_milli", FGPU_STEP), ("cpu", 1)):
        offered = max((getattr(it, name) for it in offers if getattr(it, name) < getattr(asked, name)), default=0)
        sizes = [size for size in range(step, getattr(asked, name), step) if size > offered]
        for size in {*random.sample(sizes, min(12, len(sizes))), *(size for size in sizes if size % 250 == 0)}:
            only: dict[str, Any] = {name: size}
            changed = [request._replace(**only) for request in requests]
            assert not all_start(state.cluster, changed), (name, size, offered)


def test_less_of_a_gpu_is_the_most_that_starts() -> None:
    """The head starts in an hour on two of three GPUs: until then one may be held by others."""
    running = (RunningSession("x", 2, 1, 12, 1, ((100, 1000),), at(-1), at(1)),)
    host = replace(make_host(1, [0, 1000, 1000], cpu=32), cpu_free=20)
    world = replace(make_snapshot([host], [make_request("head", 2000, cpu=22)._replace(priority=1)]), running=running)
    (offer,) = advise(world, [make_request("mine", 1250)], NOW).alternatives
    assert (offer.fgpu_milli, offer.starts) == (1000, "now")


def test_whole_gpus_are_offered_where_none_is_divided() -> None:
    world = make_snapshot([make_host(1, [1000, 1000], divides=False)], [])
    (offer,) = advise(world, [make_request("mine", 3000)], NOW).alternatives
    assert (offer.fgpu_milli, offer.starts) == (2000, "now")


def test_what_starts_elsewhere_is_not_counted_twice() -> None:
    owner = LimitHolder(limits=PolicyLimits(sessions=2), used=Amounts())
    hosts = [make_host(1, [1000]), make_host(2, [1000, 1000], group=2)]
    requests = [make_request(f"mine-{number}", 1000, memory=GIB) for number in range(2)]
    world = make_snapshot(hosts, [], {1: owner})
    advice = advise(world, requests, NOW, elsewhere=[requests[0]._replace(group_id=2)])
    assert [(it.group_id, it.starts) for it in advice.alternatives if it.fgpu_milli == 1000] == [(2, "now")]
