"""Clusters over several hosts go to hosts near each other, compared with all sets of hosts."""

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from scheduler.core.tests.worlds import make_host, make_request, make_snapshot, placed, plan
from scheduler.core.types import ClusterMode, HostView, SessionRequest, Topology

PATHS: tuple[Topology, ...] = ((), ("a",), ("a", "1"), ("a", "2"), ("b", "1"), ("b", "1", "x"), ("b", "1", "y"))


def host_at(number: int, gpus: int, *path: str, model: str = "m") -> HostView:
    return replace(make_host(number, [1000] * gpus), topology=path, traits=frozenset({f"gpu_model:{model}"}))


def cluster(members: int, mode: ClusterMode = "any") -> SessionRequest:
    ids = tuple(f"c.{rank}" for rank in range(1, members))
    request = make_request("c", 1000 * members, cpu=members)
    return request._replace(members=members, mode=mode, member_ids=("c", *ids))


def hosts_of(hosts: list[HostView], request: SessionRequest) -> set[int]:
    return {host_id for host_id, _ in placed(plan(make_snapshot(hosts, [request]))).values()}


def in_common(hosts: list[HostView]) -> int:
    """Return the length of the path that all have in common."""
    first, *others = (host.topology for host in hosts)
    return max(length for length in range(len(first) + 1) if all(it[:length] == first[:length] for it in others))


def test_near_hosts_come_before_far_ones() -> None:
    hosts = [host_at(1, 2, "row1", "rack1"), host_at(2, 2, "row2", "rack1"), host_at(3, 2, "row2", "rack1")]
    assert hosts_of(hosts, cluster(4)) == {2, 3}
    assert hosts_of(hosts, cluster(2, "spread")) == {2, 3}


def test_fewer_hosts_come_before_near_ones() -> None:
    hosts = [host_at(number, 2, "row1", "rack1") for number in (1, 2, 3)]
    hosts += [host_at(4, 3, "row1", "rack2"), host_at(5, 3, "row2", "rack1")]
    assert hosts_of(hosts, cluster(6)) == {4, 5}


def test_of_racks_that_suit_the_fuller_one_is_taken() -> None:
    hosts = [host_at(number, 2, "rack1") for number in (1, 2, 3)] + [host_at(number, 2, "rack2") for number in (4, 5)]
    assert hosts_of(hosts, cluster(4)) == {4, 5}


def test_hosts_without_a_place_are_far_from_all() -> None:
    hosts = [host_at(1, 1), host_at(2, 1), host_at(3, 1, "row1", "rack1"), host_at(4, 1, "row1", "rack2")]
    assert hosts_of(hosts, cluster(2)) == {3, 4}


def test_a_near_model_comes_before_a_far_one() -> None:
    hosts = [host_at(1, 1, "r1"), host_at(2, 1, "r2"), host_at(3, 1, "r1", model="n"), host_at(4, 1, "r1", model="n")]
    assert hosts_of(hosts, cluster(2)) == {3, 4}


@pytest.mark.parametrize("seed", range(150))
def test_no_set_of_hosts_is_better(seed: int) -> None:
    random = Random(seed)
    numbers = range(1, random.randint(3, 8))
    hosts = [host_at(each, random.randint(0, 4), *random.choice(PATHS), model=random.choice("mmn")) for each in numbers]
    mode: ClusterMode = random.choice(("any", "spread"))
    request = cluster(random.randint(2, 9), mode)
    chosen = hosts_of(hosts, request)

    def takes(some: tuple[HostView, ...]) -> bool:
        room = [len(host.gpus) for host in some]
        is_enough = all(room) and (len(some) if mode == "spread" else sum(room)) >= request.members
        return is_enough and len({host.traits for host in some}) == 1

    sets = [some for size in range(1, len(hosts) + 1) for some in combinations(hosts, size) if takes(some)]
    ranks = [(len(some), -in_common(list(some))) for some in sets]
    if not ranks:
        assert not chosen
        return
    taken = [host for host in hosts if host.id in chosen]
    assert (len(taken), -in_common(taken) if len(taken) > 1 else min(ranks)[1]) == min(ranks)
