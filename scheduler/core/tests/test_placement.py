"""What the scheduler decides and says, by example."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from scheduler.core.tests.worlds import explanations, make_host, make_request, make_snapshot, placed, plan
from scheduler.core.types import HostView, LimitHolder, Plan, SessionRequest


def sentence(hosts: list[HostView], request: SessionRequest) -> str:
    """Return what the owner of the only request, which must wait, is told."""
    return plan(make_snapshot(hosts, [request])).waiting[0].detail


def test_the_third_session_of_a_gpu_waits_with_a_reason() -> None:
    queue = [make_request(name, 1000) for name in "abc"]
    result = plan(make_snapshot([make_host(1, [2000], capacity=2000)], queue))
    assert placed(result) == {"a": (1, ((100, 1000),)), "b": (1, ((100, 1000),))}
    assert explanations(result) == {
        "c": ("NO_CAPACITY", "Waiting for 1 fGPU on one GPU: the most that is free on a single GPU is 0.")
    }


def test_parts_of_several_gpus_never_form_one_request() -> None:
    result = plan(make_snapshot([make_host(1, [400] * 4)], [make_request("a", 1000), make_request("b", 400)]))
    assert placed(result) == {"b": (1, ((100, 400),))}
    assert (
        explanations(result)["a"][1] == "Waiting for 1 fGPU on one GPU: the most that is free on a single GPU is 0.4."
    )


@pytest.mark.parametrize(
    ("fgpu", "free", "shares"),
    [
        (1500, [2000, 2000], ((100, 1500),)),
        (1500, [1500, 2000], ((100, 1500),)),
        (2000, [1900, 2000], ((101, 2000),)),
        (3000, [2000, 2000], ((100, 1000), (101, 2000))),
        (3000, [2000, 2000, 1000], ((100, 2000), (102, 1000))),
        (3000, [2000, 1500, 1200], ((100, 2000), (102, 1000))),
        (4000, [500, 2000, 2000], ((101, 2000), (102, 2000))),
        (3000, [1500, 1500], None),
        (4000, [2000, 1990], None),
        (2010, [2000, 0], None),
    ],
)
def test_a_request_takes_whole_devices_and_one_part(
    fgpu: int, free: list[int], shares: tuple[tuple[int, int], ...] | None
) -> None:
    result = plan(make_snapshot([make_host(1, free, capacity=2000)], [make_request("a", fgpu)]))
    assert placed(result) == ({"a": (1, shares)} if shares else {})


def test_packing_takes_the_fullest_host_and_device_that_fit() -> None:
    hosts = [make_host(1, [1000, 1000]), make_host(2, [700, 500, 600]), make_host(3, [400, 400])]
    assert placed(plan(make_snapshot(hosts, [make_request("a", 500)]))) == {"a": (2, ((201, 500),))}


def test_the_host_that_becomes_fullest_is_next() -> None:
    hosts = [make_host(1, [1000, 1000]), make_host(2, [1000, 1000])]
    result = plan(make_snapshot(hosts, [make_request("a", 300), make_request("b", 200), make_request("c", 600)]))
    assert placed(result) == {"a": (1, ((100, 300),)), "b": (1, ((100, 200),)), "c": (1, ((101, 600),))}


def test_sessions_without_gpu_prefer_hosts_without_gpus() -> None:
    hosts = [make_host(1, [0]), make_host(2, [1000]), make_host(3, cpu=8), make_host(4, cpu=4)]
    result = plan(make_snapshot(hosts, [make_request(name, cpu=4) for name in "abcd"]))
    assert [placed(result)[name][0] for name in "abcd"] == [4, 3, 3, 1]


def test_equal_hosts_are_taken_by_name_then_id() -> None:
    hosts = [replace(make_host(host_id, [1000]), name=name) for host_id, name in ((3, "b"), (2, "b"), (1, "z"))]
    assert placed(plan(make_snapshot(hosts, [make_request("a", 1000)]))) == {"a": (2, ((200, 1000),))}


def test_an_avoided_host_is_used_only_if_no_other_fits() -> None:
    hosts = [make_host(1, [500]), make_host(2, [1000])]
    queue = [make_request(name, 500, avoided=(1,)) for name in "abcd"]
    result = plan(make_snapshot(hosts, queue))
    assert [placed(result)[name][0] for name in "abc"] == [2, 2, 1]
    assert explanations(result)["d"][0] == "NO_CAPACITY"


def test_a_request_that_does_not_fit_blocks_no_other() -> None:
    hosts = [make_host(1, [1000] * 7), make_host(2, [1000] * 4)]
    queue = [make_request("big", 8000), *(make_request(str(n), 1000) for n in range(12))]
    result = plan(make_snapshot(hosts, queue))
    assert [placement.session_id for placement in result.placements] == [str(n) for n in range(11)]
    assert [waiting.session_id for waiting in result.waiting] == ["big", "11"]


def test_limits_count_held_and_newly_placed_sessions() -> None:
    owner = LimitHolder(limits=PolicyLimits(sessions=3), used=Amounts(sessions=1))
    queue = [*(make_request(name) for name in "abc"), make_request("d", owner=2)]
    result = plan(make_snapshot([make_host(1)], queue, {1: owner}))
    assert list(placed(result)) == ["a", "b", "d"]
    assert explanations(result) == {
        "c": ("USER_LIMIT", "Your policy allows 3 running sessions at once, and all are in use.")
    }


def test_a_smaller_request_passes_one_above_the_limit() -> None:
    owner = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts(fgpu=500))
    result = plan(make_snapshot([make_host(1, [1000])], [make_request("a", 600), make_request("b", 500)], {1: owner}))
    assert list(placed(result)) == ["b"]
    assert explanations(result)["a"][0] == "USER_LIMIT"


def test_project_limits_apply_to_members_together() -> None:
    queue = [make_request(name, 500, owner=owner)._replace(project_id=7) for owner, name in ((1, "a"), (2, "b"))]
    snapshot = make_snapshot([make_host(1, [1000, 1000])], [*queue, make_request("c", 1000)])
    project = LimitHolder(limits=PolicyLimits(fgpu=800), used=Amounts(fgpu=300, sessions=1))
    result = plan(replace(snapshot, projects={7: project}))
    assert list(placed(result)) == ["a", "c"]
    assert explanations(result)["b"] == (
        "PROJECT_LIMIT",
        "Your project allows 0.8 fGPU at once; with the 0.5 fGPU of this session its members would hold more.",
    )


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (PolicyLimits(sessions=0, cpu=1), "Your policy allows no running sessions."),
        (PolicyLimits(sessions=1), "Your policy allows 1 running session at once, and it is in use."),
        (PolicyLimits(sessions=2), "Your policy allows 2 running sessions at once, and all are in use."),
        (
            PolicyLimits(cpu=9, memory=3 * GIB, fgpu=1500),
            "Your policy allows 9 CPU cores, 3 GiB of memory and 1.5 fGPU at once; "
            "with the 2 CPU cores, 2 GiB of memory and 0.5 fGPU of this session you would hold more.",
        ),
        (
            PolicyLimits(cpu=1),
            "Your policy allows 1 CPU core at once; with the 2 CPU cores of this session you would hold more.",
        ),
    ],
)
def test_the_explanation_names_the_limit_reached(limits: PolicyLimits, text: str) -> None:
    owner = LimitHolder(limits=limits, used=Amounts(cpu=8, memory=2 * GIB, fgpu=1500, sessions=2))
    request = make_request("a", 500, cpu=2, memory=2 * GIB)
    assert explanations(plan(make_snapshot([make_host(1, [1000])], [request], {1: owner}))) == {
        "a": ("USER_LIMIT", text)
    }


def test_a_host_without_division_takes_no_parts() -> None:
    whole_only = make_host(1, [1000, 1000], divides=False)
    queue = [make_request("part", 500), make_request("rest", 1500), make_request("whole", 1000), make_request("none")]
    result = plan(make_snapshot([whole_only], queue))
    assert placed(result) == {"whole": (1, ((100, 1000),)), "none": (1, ())}
    assert explanations(result)["part"] == (
        "NO_CAPACITY",
        "Waiting for 0.5 fGPU: no ready host of this session's resource group can divide a GPU; whole ones can be had.",
    )
    assert "can divide a GPU" in explanations(result)["rest"][1]


def test_undividable_gpus_do_not_count_for_parts() -> None:
    hosts = [make_host(1, [1000], divides=False), make_host(2, [250])]
    result = plan(make_snapshot(hosts, [make_request("part", 500), make_request("small", 250)]))
    assert placed(result) == {"small": (2, ((200, 250),))}
    assert explanations(result)["part"][1] == (
        "Waiting for 0.5 fGPU on one GPU: the most that is free on a single GPU is 0."
    )


def test_a_group_of_cordoned_hosts_is_explained() -> None:
    snapshot = replace(make_snapshot([], [make_request("a"), make_request("b", group=2)]), closed_groups=frozenset({1}))
    closed = "Every ready host of this session's resource group is closed for new sessions at present."
    assert explanations(plan(snapshot))["a"] == ("NO_HOST", closed)
    assert explanations(plan(snapshot))["b"] == ("NO_HOST", "No host of this session's resource group is ready.")


def test_a_group_without_ready_hosts_is_named_as_the_reason() -> None:
    result = plan(make_snapshot([make_host(1, [1000])], [make_request("a", group=2)]))
    assert explanations(result) == {"a": ("NO_HOST", "No host of this session's resource group is ready.")}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            make_request("a", 600),
            "Waiting for 0.6 fGPU on one GPU: the most that is free on a single GPU is 0.5.",
        ),
        (
            make_request("a", 2000),
            "Waiting for 2 fGPU on one host, as 2 whole GPUs: the most that one host can give this way is 0.5.",
        ),
        (
            make_request("a", 1250),
            "Waiting for 1.25 fGPU on one host, as 1 whole GPU and 0.25 fGPU of another: "
            "the most that one host can give this way is 0.5.",
        ),
        (make_request("a", cpu=17), "Waiting for 17 CPU cores on one host: at most 16 are free."),
        (make_request("a", memory=65 * GIB), "Waiting for 65 GiB of memory on one host: at most 64 GiB is free."),
        (
            make_request("a", 500, cpu=8),
            "Waiting for 8 CPU cores on one host: at most 3 are free beside the GPU asked for.",
        ),
        (
            make_request("a", 400, memory=8 * GIB),
            "Waiting for 8 GiB of memory on one host: at most 4 GiB is free beside the GPU asked for.",
        ),
        (
            make_request("a", cpu=16, memory=64 * GIB),
            "Waiting for 16 CPU cores and 64 GiB of memory on one host: "
            "each is free somewhere, but not all on the same host.",
        ),
        (
            make_request("a", 600, cpu=17),
            "Waiting for 0.6 fGPU on one GPU: the most that is free on a single GPU is 0.5. "
            "Waiting for 17 CPU cores on one host: at most 16 are free.",
        ),
    ],
)
def test_the_explanation_names_missing_and_offered_amounts(request_: SessionRequest, text: str) -> None:
    hosts = [
        make_host(1, [500, 300], cpu=3, memory=4 * GIB),
        make_host(2, cpu=16, memory=8 * GIB),
        make_host(3, cpu=2, memory=64 * GIB),
    ]
    assert sentence(hosts, request_) == text


def test_missing_gpus_and_full_hosts_are_explained_differently() -> None:
    request = make_request("a", 1000, cpu=2)
    assert sentence([make_host(1)], request) == (
        "Waiting for 1 fGPU: no ready host of this session's resource group has a GPU."
    )
    assert sentence([make_host(1, [1000], cpu=0)], request) == "Waiting for 2 CPU cores on one host: none is free."
    assert sentence([make_host(1, [1000], cpu=1)], request) == "Waiting for 2 CPU cores on one host: at most 1 is free."


def test_a_second_pass_gives_the_same_plan() -> None:
    queue = [make_request("a", 1000), make_request("b", 600), make_request("c", 300)]
    first = plan(make_snapshot([make_host(1, [900])], queue))
    assert explanations(first)["a"][1].endswith("is 0.")
    second = plan(make_snapshot([make_host(1, [0], cpu=14, memory=62 * GIB)], [queue[0]]))
    assert second == Plan(placements=(), waiting=first.waiting)


def test_an_overcommitted_device_takes_nothing_and_hides_none() -> None:
    result = plan(make_snapshot([make_host(1, [-500, 200])], [make_request("a", 200), make_request("b", 10)]))
    assert placed(result) == {"a": (1, ((101, 200),))}
    assert (
        explanations(result)["b"][1] == "Waiting for 0.01 fGPU on one GPU: the most that is free on a single GPU is 0."
    )


def test_an_overcommitted_host_offers_no_cores() -> None:
    assert sentence([make_host(1, cpu=-2)], make_request("a")) == "Waiting for 1 CPU core on one host: none is free."


def test_placement_needs_no_django() -> None:
    code = "import sys, scheduler.core.placement; sys.exit('django' in sys.modules)"
    root = Path(__file__).resolve().parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
