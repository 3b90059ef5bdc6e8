"""What the owner of a waiting cluster is told: what it needs, how much of that is there, and when the rest is."""

from dataclasses import replace
from datetime import timedelta

import pytest

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import plan
from scheduler.core.tests.worlds import NOW, make_host, make_request, make_snapshot
from scheduler.core.types import (
    ClusterMode,
    HostView,
    LimitHolder,
    RunningSession,
    SessionRequest,
    WaitExplanation,
)
from sessions.lifecycle import Reason

EACH = "2 CPU cores, 1 GiB of memory and 0.5 fGPU"
HOUR = timedelta(hours=1)
HOSTS = (make_host(1, [500, 500]), make_host(2, [0, 500]))


def of_four(mode: ClusterMode = "any") -> SessionRequest:
    request = make_request("c", 2000, cpu=8, memory=4 * GIB)
    return request._replace(members=4, mode=mode, member_ids=("c", "c.1", "c.2", "c.3"))


def waiting_on(*hosts: HostView, mode: ClusterMode = "any") -> WaitExplanation:
    (waiting,) = plan(make_snapshot(hosts, [of_four(mode)]), NOW).waiting
    return waiting


def with_model(host: HostView, model: str) -> HostView:
    return replace(host, traits=frozenset({f"gpu_model:{model}"}))


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("single-host", "4 members with {} each on one host: a host has room for 2 at most now."),
        ("any", "4 members with {} each: there is room for 3 now."),
        ("spread", "4 hosts with {} each: there is room on 2 of them now."),
    ],
)
def test_it_says_what_is_needed_and_what_is_there(mode: ClusterMode, text: str) -> None:
    assert waiting_on(*HOSTS, mode=mode).detail == f"Needs {text.format(EACH)}"


@pytest.mark.parametrize(
    ("mode", "end"),
    [
        ("any", "each: not all have room now."),
        ("spread", "each, on a host each: not all have room now."),
        ("single-host", "each on one host: no host has room for all now."),
    ],
)
def test_a_main_of_another_size_is_told_apart(mode: ClusterMode, end: str) -> None:
    request = of_four(mode)._replace(cpu=9, fgpu_milli=1500, main=(3, GIB, 0))
    (waiting,) = plan(make_snapshot((make_host(1, [500, 0]),), [request]), NOW).waiting
    assert waiting.detail == f"Needs main1 with 3 CPU cores and 1 GiB of memory and 3 more with {EACH} {end}"


@pytest.mark.parametrize("mode", ["any", "spread", "single-host"])
def test_without_room_for_one_all_modes_say_so(mode: ClusterMode) -> None:
    detail = waiting_on(make_host(1, [400]), mode=mode).detail
    assert detail == f"Needs 4 members with {EACH} each: no host has room for one now."


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("any", "4 members with {} each, on GPUs of one model: there is room for 2 now."),
        ("spread", "4 hosts with {} each, of one GPU model: there is room on 1 of them now."),
    ],
)
def test_room_on_another_model_does_not_count(mode: ClusterMode, text: str) -> None:
    hosts = [with_model(host, model) for host, model in zip(HOSTS, "AB", strict=True)]
    assert waiting_on(*hosts, mode=mode).detail == f"Needs {text.format(EACH)}"


def test_pinned_members_are_told_of_room_on_their_hosts() -> None:
    pinned = of_four()._replace(pins=(1, 2, 2, 2))
    other = pinned._replace(id="d", pins=(2, 2, 2, 2))
    waiting = plan(make_snapshot((*HOSTS, make_host(3, [1000])), [pinned, other]), NOW).waiting
    where = f"Needs 4 members with {EACH} each on the hosts with their files: there is room for"
    assert [one.detail for one in waiting] == [f"{where} 2 now.", f"{where} 1 now."]


def test_room_that_is_reserved_for_it_counts() -> None:
    held = RunningSession("r", 2, 2, 1, GIB, ((200, 500),), NOW, NOW + HOUR)
    state = IncrementalState(replace(make_snapshot(HOSTS, [of_four()]), running=(held,)))
    state.serve(NOW)
    assert len(state.cluster.groups[1].reserved_hosts) == 2
    (waiting,) = plan(replace(make_snapshot(HOSTS, [of_four()]), running=(held,)), NOW).waiting
    assert waiting.detail.endswith("there is room for 3 now.")
    assert waiting.eta == NOW + HOUR
    assert waiting.eta_reason == "its 4 members have room when 1 session reaches its time limit"


def test_room_that_is_reserved_for_another_is_the_reason() -> None:
    held = RunningSession("r", 2, 2, 1, GIB, ((200, 500),), NOW, NOW + HOUR)
    first, second = make_request("a", 3000, cpu=6)._replace(members=3), of_four()._replace(members=2, fgpu_milli=1000)
    first = first._replace(mode="spread", member_ids=("a", "a.1", "a.2"))
    hosts = (make_host(1, [1000, 1000]), make_host(2, [0]), make_host(3, [1000]))
    held = held._replace(shares=((200, 1000),))
    world = replace(make_snapshot(hosts, [first, second._replace(member_ids=("c", "c.1"))]), running=(held,))
    waiting = {each.session_id: each for each in plan(world, NOW).waiting}
    assert waiting["a"].detail.endswith("there is room on 2 of them now.")
    assert waiting["c"].reason == Reason.RESERVED


@pytest.mark.parametrize("mode", ["any", "spread", "single-host"])
def test_reserved_room_counts_for_main_and_others(mode: ClusterMode) -> None:
    hosts = (make_host(1, [1000, 1000]), make_host(2, [1000, 0]))
    held = RunningSession("r", 2, 2, 1, GIB, ((201, 1000),), NOW, NOW + HOUR)
    first = make_request("a", 4000, cpu=4)._replace(members=4, mode="any", member_ids=("a", "a.1", "a.2", "a.3"))
    second = of_four(mode)._replace(members=2, cpu=3, fgpu_milli=1000, main=(1, GIB, 0), member_ids=("c", "c.1"))
    world = replace(make_snapshot(hosts, [first, second]), running=(held,))
    waiting = {each.session_id: each for each in plan(world, NOW).waiting}
    assert waiting["a"].reason == Reason.NO_CAPACITY
    assert waiting["c"].reason == Reason.RESERVED


def test_a_limit_is_told_with_the_number_of_members() -> None:
    limited = LimitHolder(limits=PolicyLimits(sessions=5), used=Amounts(sessions=2))
    (waiting,) = plan(make_snapshot(HOSTS, [of_four()], {1: limited}), NOW).waiting
    text = "Your policy allows 5 running sessions at once; with the 4 members of this cluster you would hold more."
    assert waiting.detail == text
