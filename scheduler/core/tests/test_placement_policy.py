"""Choice among the hosts that fit, by each placement policy.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| fragmentation_is_what_usual_requests_cannot_use | whole devices are not counted; |
| | parts that are too small count as useful |
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.trace import synthetic_trace
from scheduler.core.capacity.fragmentation import Fragmentation, usual_shapes
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.placement_policy import policy_for
from scheduler.core.tests.worlds import make_host, make_request, make_snapshot, placed, plan
from scheduler.core.types import GpuView, HostView, PlacementPolicyName, Rules, SessionRequest, Shape


def place(
    placement_policy: PlacementPolicyName, hosts: list[HostView], request: SessionRequest, *mix: Shape
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the host and shares of `request` under a mix of usual requests."""
    rules = {1: Rules(placement_policy=placement_policy, mix=tuple((shape, 1) for shape in mix))}
    return placed(plan(replace(make_snapshot(hosts, [request]), rules=rules)))[request.id]


def test_spreading_takes_the_emptiest_host_and_device() -> None:
    hosts = [make_host(1, [500, 1000]), make_host(2, [700, 1000]), make_host(3, [600, 1000])]
    assert place(PlacementPolicyName.SPREAD, hosts, make_request("a", 300)) == (2, ((201, 300),))


@settings(max_examples=150)
@given(
    placement_policy=st.sampled_from(PlacementPolicyName),
    free=st.lists(st.sampled_from([0, 200, 300, 600, 1000]), min_size=1, max_size=5),
    fgpu_milli=st.integers(1, 40).map(lambda steps: 100 * steps),
    has_links=st.booleans(),
)
def test_each_policy_gives_exactly_what_is_asked_for(
    placement_policy: PlacementPolicyName, free: list[int], fgpu_milli: int, has_links: bool
) -> None:
    """Seen red where the part was taken from the last whole device that the rest needed."""
    links = tuple(tuple((one + other) % 3 for other in range(len(free))) for one in range(len(free)))
    gpus = [GpuView(number, 1000, amount) for number, amount in enumerate(free)]
    host = HostCapacity(host_id=1, index=0, cpu=8, memory_bytes=8, gpus=gpus, closeness=links if has_links else ())
    shape, part = Shape(1, 1, fgpu_milli), fgpu_milli % 1000
    if not host.fits(shape):
        return
    policy = policy_for(Rules(placement_policy=placement_policy), 1000, lambda: [(Shape(1, 1, 300), 1), (shape, 1)])
    devices = policy.devices(host, shape, part) if part else ()
    assert not part or policy.device(host, shape, part) == devices[0]
    for device in devices or (0,):
        shares = host.copy().take(shape, host.split(fgpu_milli, (device,)))
        assert sum(amount for _, amount in shares) == fgpu_milli
        assert all(amount <= free[gpu_id] for gpu_id, amount in shares)


def test_fgd_leaves_what_usual_requests_can_use() -> None:
    hosts = [make_host(1, [700]), make_host(2, [800])]
    request = make_request("a", 400)
    assert place(PlacementPolicyName.PACK, hosts, request) == (1, ((100, 400),))
    assert place(PlacementPolicyName.FGD, hosts, request, Shape(1, 1, 400)) == (2, ((200, 400),))
    assert place(PlacementPolicyName.FGD, [make_host(1, [700, 800])], request, Shape(1, 1, 400)) == (1, ((101, 400),))


def test_balance_sends_core_heavy_requests_to_core_rich_hosts() -> None:
    hosts = [make_host(1, [1000, 1000], cpu=16), make_host(2, [1000, 1000], cpu=64)]
    request = make_request("a", cpu=6)
    mix = Shape(8, 1, 1000)
    assert place(PlacementPolicyName.FGD, hosts, request, mix)[0] == 1
    assert place(PlacementPolicyName.BALANCE, hosts, request, mix)[0] == 2


@pytest.mark.parametrize("placement_policy", [PlacementPolicyName.FGD, PlacementPolicyName.BALANCE])
def test_without_a_mix_current_sessions_provide_it(placement_policy: PlacementPolicyName) -> None:
    hosts = [make_host(1, [700]), make_host(2, [800])]
    queue = [make_request("a", 400), make_request("b", 400)]
    snapshot = replace(make_snapshot(hosts, queue), rules={1: Rules(placement_policy=placement_policy)})
    assert placed(plan(snapshot)) == {"a": (2, ((200, 400),)), "b": (2, ((200, 400),))}


def test_usual_requests_are_the_most_frequent_95_percent() -> None:
    often, seldom, rare = Shape(1, 1, 500), Shape(1, 1, 250), Shape(9, 9, 8000)
    assert usual_shapes([(often, 60), (rare, 4), (seldom, 30), (often, 6)]) == [(often, 66 / 96), (seldom, 30 / 96)]


shapes = st.builds(
    Shape,
    cpu=st.integers(1, 4),
    memory_bytes=st.integers(1, 4),
    fgpu_milli=st.sampled_from([0, 200, 500, 700, 1000, 2000, 3000]),
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(shapes, st.integers(1, 5)), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.lists(st.sampled_from([0, 100, 300, 500, 800, 1000]), max_size=4),
)
def test_fragmentation_is_what_usual_requests_cannot_use(
    mix: list[tuple[Shape, int]], cpu: int, memory: int, device_free: list[int]
) -> None:
    expected = 0.0
    for shape, weight in usual_shapes(mix):
        fits = cpu >= shape.cpu and memory >= shape.memory_bytes and shape.fgpu_milli > 0
        whole = shape.fgpu_milli >= 1000
        enough = (
            device_free.count(1000) * 1000 >= shape.fgpu_milli
            if whole
            else max(device_free, default=0) >= shape.fgpu_milli
        )
        least = min(shape.fgpu_milli, 1000)
        lost = sum(free for free in device_free if free < least) if fits and enough else sum(device_free)
        expected += weight * lost
    assert Fragmentation(mix, 1000).unusable_milli(cpu, memory, device_free) == pytest.approx(expected)


def test_on_a_trace_balance_allocates_most_and_spreading_least() -> None:
    trace = synthetic_trace()
    shares = {
        placement_policy: sum(trace.allocation(placement_policy, seed).percent for seed in (1, 2))
        for placement_policy in PlacementPolicyName
    }
    assert sorted(shares, key=shares.__getitem__) == [
        PlacementPolicyName.SPREAD,
        PlacementPolicyName.PACK,
        PlacementPolicyName.FGD,
        PlacementPolicyName.BALANCE,
    ]
