"""Who ends for a cluster over several hosts: the fewest, clusters whole, all members or nobody; by trying every set."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import chain, combinations
from random import Random

import pytest

from scheduler.core.capacity.member_search import MemberSearch
from scheduler.core.cluster import member_preemption
from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import Preemption, find_preemption
from scheduler.core.tests.worlds import NOW, make_host, make_request
from scheduler.core.types import ClusterMode, HostIds, RunningSession, SessionRequest, Snapshot, member_placements
from scheduler.core.victims import without

MINUTE = timedelta(minutes=1)


def cluster_request(
    members: int, each: int, mode: ClusterMode = "any", *, cpu: int = 1, pins: HostIds = ()
) -> SessionRequest:
    ids = ("new", *(f"new.{rank}" for rank in range(1, members)))
    request = make_request("new", members * each, cpu=members * cpu, memory=members)
    return request._replace(members=members, mode=mode, member_ids=ids, pins=pins)


def with_main(request: SessionRequest, cpu: int, milli: int) -> SessionRequest:
    """Return the request with a first member of so many cores and so much GPU."""
    others, each = request.members - 1, request.each
    request = request._replace(cpu=cpu + others * each[0], fgpu_milli=milli + others * each[2])
    return request._replace(main=(cpu, each[1], milli))


def state_of(hosts: Sequence[int], sessions: Sequence[RunningSession]) -> ClusterState:
    """Return hosts of so many GPUs and 20 cores on which the sessions run."""
    views = [make_host(number, [1000] * gpus, cpu=20, memory=99) for number, gpus in enumerate(hosts, 1)]
    cluster = ClusterState(Snapshot(hosts=tuple(views), queue=(), owners={}))
    for session in sessions:
        cluster.add_running(session)
    return cluster


def on(host: int, name: str, *devices: int, age: int = 1, whole: str = "", share: int = 1000) -> RunningSession:
    """Return a preemptible session that holds devices of a host, of a cluster or not."""
    shares = tuple((100 * host + device, share) for device in devices)
    return RunningSession(name, 1, host, 1, 1, shares, NOW - age * MINUTE, is_preemptible=True, cluster_id=whole)


def find(cluster: ClusterState, request: SessionRequest) -> Preemption | None:
    return find_preemption(cluster.groups[1], request, Candidates(cluster.running_sessions()), NOW)


def wholes_of(sessions: Sequence[RunningSession]) -> list[list[RunningSession]]:
    """Return who ends together."""
    found: dict[str, list[RunningSession]] = {}
    for session in sessions:
        found.setdefault(session.cluster_id or session.session_id, []).append(session)
    return [*found.values()]


def has_room(cluster: ClusterState, ended: Sequence[RunningSession], request: SessionRequest) -> bool:
    hosts = [without(host, ended) for host in cluster.groups[1].capacity.hosts]
    return bool(MemberSearch(request.shape, hosts).choose(request.members, request.mode))


def test_sessions_end_on_several_hosts() -> None:
    cluster = state_of([1, 1, 1], [on(1, "a", 0, age=9), on(2, "b", 0, age=1), on(3, "c", 0, age=5)])
    found = find(cluster, cluster_request(2, 1000))
    assert found is not None
    assert sorted(found.victim_ids) == ["b", "c"]
    assert found.placed == ((1, 3, ((300, 1000),)), (1, 2, ((200, 1000),)))


def test_nobody_ends_where_not_all_find_room() -> None:
    staying = on(2, "b", 0)._replace(is_preemptible=False)
    assert find(state_of([1, 1], [on(1, "a", 0), staying]), cluster_request(2, 1000)) is None


def test_nobody_ends_where_all_have_room() -> None:
    ending = on(1, "a", 0)._replace(is_preemptible=False, preempted_for="other")
    assert find(state_of([1, 1, 1], [ending, on(2, "b", 0)]), cluster_request(2, 1000)) is None


def test_one_wide_session_ends_rather_than_two() -> None:
    cluster = state_of([2, 1, 1], [on(1, "wide", 0, 1, age=99), on(2, "b", 0), on(3, "c", 0)])
    found = find(cluster, cluster_request(2, 1000))
    assert found is not None
    assert found.victim_ids == ("wide",)


def test_a_cluster_ends_whole_for_another() -> None:
    sessions = [on(1, "v0", 0, whole="v"), on(2, "v1", 0, whole="v"), on(3, "x", 0, age=50), on(4, "y", 0, age=60)]
    found = find(state_of([1, 1, 1, 1], sessions), cluster_request(3, 1000, "spread"))
    assert found is not None
    assert sorted(found.victim_ids) == ["v0", "v1", "x"]


def test_members_elsewhere_end_too_as_long_as_they_run() -> None:
    here, elsewhere = on(1, "v0", 0, whole="v"), on(2, "v1", 0, whole="v")
    host, shape = state_of([1], [here]).groups[1].capacity.hosts[0], make_request("new", 1000, memory=1).shape
    candidates = Candidates([here, elsewhere])
    assert candidates.victims_on(host, shape, 9) == [here, elsewhere]
    candidates.remove(elsewhere)
    assert candidates.victims_on(host, shape, 9) == [here]
    candidates.add(elsewhere)
    assert candidates.victims_on(host, shape, 9) == [here, elsewhere]


def test_main_of_its_own_size_is_made_room_for() -> None:
    sessions = [on(1, "a", 0)._replace(cpu=3), on(2, "b", age=9)._replace(cpu=18), on(3, "c", 0, age=5)._replace(cpu=3)]
    cluster = state_of([2, 0, 1], sessions)
    found = find(cluster, with_main(cluster_request(2, 1000), 18, 0))
    assert found is not None
    assert found.victim_ids == ("a",)
    assert found.placed == ((2, 1, ((100, 1000),)),)


def test_main_with_a_gpu_has_the_model_of_the_others() -> None:
    cluster = state_of([1, 1, 1], [on(2, "b", 0), on(3, "c", 0, age=9)])
    for host, model in zip(cluster.groups[1].capacity.hosts, "aba", strict=True):
        host.gpu_model = model
    found = find(cluster, with_main(cluster_request(2, 1000), 2, 1000))
    assert found is not None
    assert found.victim_ids == ("c",)


def test_clusters_differ_in_the_size_of_main() -> None:
    request = with_main(cluster_request(3, 1000), 3, 1000)
    assert request.class_key != request._replace(main=(1, 1, 1000)).class_key


def test_main_takes_the_place_of_another_member() -> None:
    cluster = state_of([1, 1], [on(2, "a", 0)])
    found = find(cluster, with_main(cluster_request(2, 1000), 2, 1000))
    assert found is not None
    assert found.victim_ids == ("a",)
    assert [(count, host) for count, host, _ in found.placed] == [(1, 1), (1, 2)]


def test_hosts_of_the_last_failure_come_last() -> None:
    cluster = state_of([1, 1, 1], [on(1, "a", 0), on(2, "b", 0, age=9), on(3, "c", 0, age=9)])
    found = find(cluster, cluster_request(2, 1000)._replace(avoided_host_ids=(1,)))
    assert found is not None
    assert sorted(found.victim_ids) == ["b", "c"]


def test_sessions_end_where_members_are_pinned() -> None:
    cluster = state_of([2, 2, 1], [on(1, "a", 0), on(1, "b", 1), on(2, "c", 0), on(2, "d", 1)])
    found = find(cluster, cluster_request(3, 1000, pins=(2, 1, 2)))
    assert found is not None
    assert sorted(found.victim_ids) in (["a", "c", "d"], ["b", "c", "d"])
    started = cluster.start_at(cluster_request(3, 1000, pins=(2, 1, 2)), found.placed, NOW)
    assert {each.session_id: each.host_id for each in started} == {"new": 2, "new.1": 1, "new.2": 2}


def test_hosts_reserved_for_another_are_left_to_it() -> None:
    cluster = state_of([1, 1, 1], [on(1, "a", 0), on(2, "b", 0), on(3, "c", 0)])
    group = cluster.groups[1]
    group.head = make_request("head")
    group.capacity.set_reserved(group.capacity.hosts[0], True)
    found = find(cluster, cluster_request(2, 1000))
    assert found is not None
    assert sorted(found.victim_ids) == ["b", "c"]
    assert find(cluster, cluster_request(3, 1000)) is None


def random_world(random: Random, *, with_clusters: bool) -> tuple[list[int], list[RunningSession]]:
    hosts = [random.randint(1, 3) for _ in range(random.randint(2, 4))]
    sessions: list[RunningSession] = []
    for number, gpus in enumerate(hosts, 1):
        free = [*range(gpus)]
        while free and random.random() < 0.8 and len(sessions) < 8:
            devices = [free.pop() for _ in range(random.randint(1, len(free)))]
            whole = random.choice(("", "v", "w")) if with_clusters else ""
            one = on(number, f"s{len(sessions)}", *devices, age=random.randint(1, 9), whole=whole)
            sessions.append(one if random.random() < 0.8 else one._replace(is_preemptible=False))
    return hosts, sessions


@pytest.mark.parametrize("has_main", [False, True])
@pytest.mark.parametrize("with_clusters", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_no_smaller_set_makes_room_for_all(seed: int, *, with_clusters: bool, has_main: bool) -> None:
    random = Random(seed)
    for _ in range(40):
        hosts, sessions = random_world(random, with_clusters=with_clusters)
        cluster = state_of(hosts, sessions)
        modes: tuple[ClusterMode, ...] = ("any", "spread")
        members, mode = random.randint(2, 5), random.choice(modes)
        request = cluster_request(members, random.choice((1000, 1000, 2000, 500, 0)), mode)
        if mode == "any" and random.random() < 0.3:
            request = request._replace(pins=tuple(random.choices(range(1, len(hosts) + 1), k=members)))
        if has_main:
            each = request.each[2]
            request = with_main(request, random.choice((1, 1, 19)), random.choice((0, each)) if each else 1000)
        wholes = wholes_of([one for one in sessions if one.is_preemptible])
        sets = [[*chain(*some)] for size in range(len(wholes) + 1) for some in combinations(wholes, size)]
        able = [some for some in sets if has_room(cluster, some, request)]
        found = find(cluster, request)
        if not able or [] in able:
            assert found is None
            continue
        assert found is not None
        ended = [one for one in sessions if one.session_id in found.victim_ids]
        assert has_room(cluster, ended, request)
        for whole in wholes_of(ended):
            assert not has_room(cluster, [one for one in ended if one not in whole], request), "each is needed"
        assert all(set(map(id, whole)) <= set(map(id, ended)) for whole in wholes if whole[0] in ended)
        if not with_clusters and request.fgpu_milli % 1000 == 0:
            assert len(ended) == min(map(len, able))
        check_shares(cluster, found, ended, request)


def check_shares(
    cluster: ClusterState, found: Preemption, ended: Sequence[RunningSession], request: SessionRequest
) -> None:
    """What each member is to have is there once the victims have ended."""
    for victim in ended:
        cluster.remove_running(victim)
    started = cluster.start_at(request, found.placed, NOW)
    assert started == member_placements(request, found.placed)
    assert all(cluster.covers(cluster.groups[1].running[each.session_id]) for each in started)
    assert sum(milli for each in started for _, milli in each.shares) == request.fgpu_milli


def test_work_is_bounded_on_many_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: set[int] = set()
    victims_on = Candidates.victims_on

    def count(self: Candidates, host: object, *others: object) -> object:
        looked_at.add(host.index)  # type: ignore[attr-defined]
        return victims_on(self, host, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Candidates, "victims_on", count)
    sessions = [on(host, f"s{host}-{device}", device, age=host) for host in range(1, 201) for device in range(8)]
    cluster = state_of([8] * 200, sessions)
    found = find(cluster, cluster_request(64, 1000))
    assert found is not None
    assert len(found.victim_ids) == 64
    assert len(looked_at) <= member_preemption.MAX_HOSTS
