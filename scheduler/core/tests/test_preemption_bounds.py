"""What finds preemptions looks at few hosts, and at each once; the choice is that of looking at all.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| the_choice_is_that_of_looking_at_all_hosts | the bound counts one session too many; it ignores what ends |
| | already; what was found is not forgotten as sessions change |
| repeated_searches_look_at_changed_hosts_only | nothing is remembered |
| more_hosts_take_no_more_than_their_part | no bound |
"""

from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.cluster import candidates as found_candidates
from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import find_preemption
from scheduler.core.tests.timelines import many
from scheduler.core.tests.worlds import NOW, make_host, make_request
from scheduler.core.types import RunningSession, SessionRequest, Shape, Snapshot
from scheduler.core.victims import Clusters, fewest_victims

MINUTE = timedelta(minutes=1)
GPUS = 4


def crowded(random: Random, hosts: int) -> ClusterState:
    """Return hosts that are full of preemptible sessions, a few of which end already."""
    views = [make_host(number, [1000] * GPUS, cpu=20, memory=99) for number in range(1, hosts + 1)]
    cluster = ClusterState(Snapshot(hosts=tuple(views), queue=(), owners={}))
    for view in views:
        for number in range(random.randint(6, 12)):
            free = cluster.groups[1].host_capacities[view.id].device_free
            device = random.randrange(GPUS)
            milli = random.choice([share for share in (0, 250, 500, 1000) if share <= free[device]])
            is_ending = random.random() < 0.1
            session = RunningSession(
                *(f"r{view.id:04}-{number}", 1, view.id, random.randint(1, 2), 1),
                ((view.gpus[device].id, milli),) if milli else (),
                NOW - random.randint(1, 500) * MINUTE,
                is_preemptible=not is_ending,
                preempted_for="other" if is_ending else "",
                cluster_id="" if is_ending else random.choice(("", "", "", "c1", "c2", "c3")),
            )
            if cluster.groups[1].host_capacities[view.id].cpu >= session.cpu:
                cluster.add_running(session)
    return cluster


def by_all_hosts(cluster: ClusterState, request: SessionRequest, candidates: Candidates) -> Sequence[str] | None:
    """Return the victims by looking at each host, None where none are needed or none suffice."""
    found = []
    clusters: dict[str, dict[str, RunningSession]] = {}
    for session in cluster.running_sessions():
        if session.is_preemptible and session.cluster_id:
            clusters.setdefault(session.cluster_id, {})[session.session_id] = session
    for host in cluster.groups[1].capacity.hosts:
        sessions = candidates.may_end.get(host.host_id, ())
        later = candidates.settled(host)
        if (sessions or host.host_id in candidates.ending) and later.fits(request.shape):
            return None
        victims = fewest_victims(later, sessions, request.shape, 999, clusters)
        if victims is not None:
            lost = sum((NOW - victim.started_at for victim in victims), timedelta())
            is_avoided = host.host_id in request.avoided_host_ids
            found.append(((is_avoided, len(victims), lost, host.index), [it.session_id for it in victims]))
    return min(found)[1] if found else None


def wanted(random: Random, hosts: int) -> SessionRequest:
    avoided = tuple(number for number in range(1, hosts + 1) if random.random() < 0.2)
    fgpu = random.choice((0, 250, 500, 1000, 1500, 2000, 4000))
    return make_request("new", fgpu, cpu=random.randint(1, 20), memory=1, avoided=avoided)


@many
@given(random=st.randoms(use_true_random=True), hosts=st.integers(1, 6))
def test_the_choice_is_that_of_looking_at_all_hosts(random: Random, hosts: int) -> None:
    cluster = crowded(random, hosts)
    candidates = Candidates(cluster.running_sessions())
    for _ in range(6):
        request = wanted(random, hosts)
        found = find_preemption(cluster.groups[1], request, candidates, NOW)
        assert (None if found is None else list(found.victim_ids)) == by_all_hosts(cluster, request, candidates)
        for session in random.sample(sorted(cluster.groups[1].running.values()), k=1):
            cluster.remove_running(session)
            candidates.remove(session)
            if random.random() < 0.5:
                changed = session._replace(is_preemptible=False, preempted_for="new")
                cluster.add_running(changed)
                candidates.add(changed)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The hosts that are searched for victims."""
    hosts: list[int] = []

    def count(
        host: HostCapacity, sessions: Sequence[RunningSession], shape: Shape, at_most: int, clusters: Clusters
    ) -> Sequence[RunningSession] | None:
        hosts.append(host.host_id)
        return fewest_victims(host, sessions, shape, at_most, clusters)

    monkeypatch.setattr(found_candidates, "fewest_victims", count)
    return hosts


def test_repeated_searches_look_at_changed_hosts_only(searched: list[int]) -> None:
    cluster = crowded(Random(1), 20)
    candidates, request = Candidates(cluster.running_sessions()), make_request("new", 4000, cpu=1, memory=1)
    first = find_preemption(cluster.groups[1], request, candidates, NOW)
    assert first is not None
    looked_at = len(searched)
    assert find_preemption(cluster.groups[1], request, candidates, NOW) == first
    assert len(searched) == looked_at
    victim = cluster.groups[1].running[first.victim_ids[0]]
    cluster.remove_running(victim)
    candidates.remove(victim)
    find_preemption(cluster.groups[1], request, candidates, NOW)
    assert set(searched[looked_at:]) == {first.placed[0][1]}


def test_more_hosts_take_no_more_than_their_part(searched: list[int]) -> None:
    def work(hosts: int) -> int:
        cluster = crowded(Random(1), hosts)
        searched.clear()
        candidates = Candidates(session for session in cluster.running_sessions() if session.is_preemptible)
        for fgpu in (3000, 3500, 4000):
            find_preemption(cluster.groups[1], make_request("new", fgpu, cpu=16, memory=1), candidates, NOW)
        return len(searched)

    few, many_more = work(50), work(200)
    assert 0 < many_more <= 5 * few
    assert many_more < 3 * 200 / 2
