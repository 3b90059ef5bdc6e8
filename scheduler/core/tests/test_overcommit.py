"""Where a core of a session takes less than a core of its host: capacity counts that, and limits the cores."""

from dataclasses import replace
from typing import Any

import pytest

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import find_preemption
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import plan
from scheduler.core.tests.worlds import NOW, explanations, make_host, make_request, make_snapshot, placed
from scheduler.core.types import HostView, LimitHolder, PlacementPolicyName, Rules, RunningSession, SessionRequest

HOST = make_host(1, cpu=4000)


def request_of(name: str, cpu: int = 4, core_milli: int = 250) -> SessionRequest:
    return make_request(name, cpu=cpu)._replace(core_milli=core_milli)


def running(name: str, cpu: int = 4, core_milli: int = 250, **more: Any) -> RunningSession:
    return RunningSession(name, 1, 1, cpu, GIB, core_milli=core_milli)._replace(**more)


@pytest.mark.parametrize("policy", PlacementPolicyName)
def test_a_host_takes_sessions_by_what_their_cores_take(policy: PlacementPolicyName) -> None:
    queue = [request_of(f"{number}") for number in range(5)]
    snapshot = replace(make_snapshot([HOST], queue), rules={1: Rules(placement_policy=policy, core_milli=250)})
    decided = plan(snapshot, NOW)
    assert len(placed(decided)) == 4
    assert explanations(decided)["4"][1] == "Waiting for 4 CPU cores on one host: none is free."
    incremental = IncrementalState(snapshot)
    assert {each.session_id for each in incremental.serve(NOW)} == placed(decided).keys()


def test_sessions_of_several_factors_share_a_host() -> None:
    snapshot = make_snapshot([HOST], [request_of("half", 2, 500), request_of("whole", 3, 1000), request_of("one", 1)])
    assert placed(plan(snapshot, NOW)).keys() == {"half", "whole"}


def test_limits_count_cores_and_not_what_they_take() -> None:
    holder = LimitHolder(limits=PolicyLimits(cpu=7), used=Amounts())
    decided = plan(make_snapshot([HOST], [request_of("first"), request_of("second")], {1: holder}), NOW)
    assert placed(decided).keys() == {"first"}
    assert "allows 7 CPU cores at once; with the 4 CPU cores" in explanations(decided)["second"][1]


def test_an_end_frees_what_was_taken_and_counted() -> None:
    holder = LimitHolder(limits=PolicyLimits(cpu=8), used=Amounts(cpu=4))
    full = replace(HOST, cpu_free=3000)
    snapshot = replace(make_snapshot([full], [], {1: holder}), running=(running("a"),))
    cluster = ClusterState(snapshot)
    request = request_of("b", cpu=5)
    assert cluster.limits.are_exceeded_by(request)
    cluster.end(1, "a")
    assert cluster.groups[1].host_capacities[1].cpu == 4000
    assert not cluster.limits.are_exceeded_by(request)
    assert cluster.place(request, NOW) is not None
    assert cluster.groups[1].host_capacities[1].cpu == 4000 - 5 * 250
    (user,) = cluster.limits.of(1, None)
    assert user.cpu == 3


def test_the_fewest_end_by_what_their_cores_take() -> None:
    sessions = (
        running("light", 8, 100, is_preemptible=True),
        running("heavy", 3, 1000, is_preemptible=True),
    )
    host: HostView = replace(HOST, cpu_free=200)
    cluster = ClusterState(replace(make_snapshot([host], []), running=sessions))
    found = find_preemption(cluster.groups[1], request_of("new", 4, 500), Candidates(sessions), NOW)
    assert found is not None
    assert found.victim_ids == ("heavy",)
