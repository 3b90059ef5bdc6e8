"""Choice among the hosts that fit, by each placement policy.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| fragmentation_is_what_usual_requests_cannot_use | whole devices are not counted; |
| | parts that are too small count as useful |
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.trace import synthetic_trace
from scheduler.core.capacity.fragmentation import Fragmentation, usual_shapes
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.placement_policy import policy_for
from scheduler.core.tests.worlds import make_host, make_request, make_snapshot, placed, plan
from scheduler.core.types import (
    GPU_MODEL_TRAIT,
    GpuView,
    HostView,
    PlacementPolicyName,
    Rules,
    RunningSession,
    SessionRequest,
    Shape,
)


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
    mix, views = [(Shape(1, 1, 300), 1), (shape, 1)], [make_host(1, free)]
    policy = policy_for(Rules(placement_policy=placement_policy), 1000, lambda: mix, views)
    devices = policy.devices(host, shape, part) if part else ()
    assert not part or policy.device(host, shape, part) == devices[0]
    for device in devices or (0,):
        shares = host.copy().take(shape, host.split(fgpu_milli, (device,)))
        assert sum(amount for _, amount in shares) == fgpu_milli
        assert all(amount <= free[gpu_id] for gpu_id, amount in shares)


def test_balance_leaves_what_usual_requests_can_use() -> None:
    hosts = [make_host(1, [700]), make_host(2, [800])]
    request = make_request("a", 400)
    assert place(PlacementPolicyName.PACK, hosts, request) == (1, ((100, 400),))
    balance, usual = PlacementPolicyName.BALANCE, Shape(1, 1, 400)
    assert place(balance, hosts, request, usual) == (2, ((200, 400),))
    assert place(balance, [make_host(1, [700, 800])], request, usual) == (1, ((101, 400),))


def test_balance_sends_core_heavy_requests_to_core_rich_hosts() -> None:
    hosts = [make_host(1, [1000, 1000], cpu=16), make_host(2, [1000, 1000], cpu=64)]
    request = make_request("a", cpu=6)
    assert place(PlacementPolicyName.BALANCE, hosts, request, Shape(8, 1, 1000))[0] == 2


def test_balance_spares_hosts_that_few_can_replace() -> None:
    """Seen red where the usual requests count by their number alone, and where the GPU model is not looked at."""
    model = f"{GPU_MODEL_TRAIT}:A100"
    rare = replace(make_host(1, [1000]), traits=frozenset({model}))
    hosts, request = [rare, *(make_host(number, [1000]) for number in (2, 3, 4))], make_request("a", 1000)
    assert place(PlacementPolicyName.BALANCE, hosts, request, Shape(1, 1, 1000))[0] == 1
    anywhere, usual = [Shape(1, 1, 1000)] * 3, Shape(1, 1, 1000, (model,))
    assert place(PlacementPolicyName.BALANCE, hosts, request, *anywhere, usual)[0] == 2
    wide = [make_host(1, [1000] * 8, cpu=64), *(make_host(number, [1000], cpu=8) for number in range(2, 20))]
    assert place(PlacementPolicyName.BALANCE, wide, request, *anywhere, Shape(8, 8, 8000))[0] == 2


def test_models_of_running_and_waiting_sessions_are_usual() -> None:
    """Seen red without the model of either."""
    model = f"{GPU_MODEL_TRAIT}:A100"
    rare = replace(make_host(1, [1000, 0]), traits=frozenset({model}))
    hosts, request = [rare, make_host(2, [1000, 0])], make_request("a", 1000)
    rules = {1: Rules(placement_policy=PlacementPolicyName.BALANCE)}
    running = RunningSession("r", 1, 1, 1, 1, ((101, 1000),), gpu_model="A100")
    waiting = make_request("w", 1000)._replace(traits=(model, "storage:x"))
    for world in (
        replace(make_snapshot(hosts, [request]), running=(running,), rules=rules),
        replace(make_snapshot(hosts, [request, waiting]), rules=rules),
    ):
        assert placed(plan(world))["a"][0] == 2


def test_without_a_mix_current_sessions_provide_it() -> None:
    hosts = [make_host(1, [700]), make_host(2, [800])]
    queue = [make_request("a", 400), make_request("b", 400)]
    snapshot = replace(make_snapshot(hosts, queue), rules={1: Rules(placement_policy=PlacementPolicyName.BALANCE)})
    assert placed(plan(snapshot)) == {"a": (2, ((200, 400),)), "b": (2, ((200, 400),))}


def test_usual_requests_are_the_most_frequent_95_percent() -> None:
    often, seldom, rare = Shape(1, 1, 500), Shape(1, 1, 250), Shape(9, 9, 8000)
    mix = [(often, 60), (rare, 4), (seldom, 30), (Shape(1, 1, 0), 100), (often, 6)]
    assert usual_shapes(mix) == [(often, 66), (seldom, 30)]


shapes = st.builds(
    Shape,
    cpu=st.integers(1, 4),
    memory_bytes=st.integers(1, 4),
    fgpu_milli=st.sampled_from([0, 200, 500, 700, 1000, 2000, 3000]),
    traits=st.sampled_from([(), (f"{GPU_MODEL_TRAIT}:A",)]),
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(shapes, st.integers(1, 5)), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.lists(st.sampled_from([0, 100, 300, 500, 800, 1000]), max_size=4),
    st.booleans(),
)
def test_fragmentation_is_what_usual_requests_cannot_use(
    mix: list[tuple[Shape, int]], cpu: int, memory: int, device_free: list[int], has_model: bool
) -> None:
    model = frozenset({f"{GPU_MODEL_TRAIT}:A"} if has_model else ())
    usual, expected = usual_shapes(mix), 0
    for shape, weight in usual:
        fits = cpu >= shape.cpu and memory >= shape.memory_bytes and model.issuperset(shape.traits)
        whole = shape.fgpu_milli >= 1000
        enough = (
            device_free.count(1000) * 1000 >= shape.fgpu_milli
            if whole
            else max(device_free, default=0) >= shape.fgpu_milli
        )
        least = min(shape.fgpu_milli, 1000)
        lost = sum(free for free in device_free if free < least) if fits and enough else sum(device_free)
        expected += weight * lost
    found = Fragmentation(usual, 1000).unusable(cpu, memory, device_free, model)
    assert found == (expected if usual else sum(device_free))


def test_on_a_trace_balance_allocates_most_and_spreading_least() -> None:
    trace = synthetic_trace()
    shares = {
        placement_policy: sum(trace.allocation(placement_policy, seed).percent for seed in (1, 2))
        for placement_policy in PlacementPolicyName
    }
    assert sorted(shares, key=shares.__getitem__) == [
        PlacementPolicyName.SPREAD,
        PlacementPolicyName.PACK,
        PlacementPolicyName.BALANCE,
    ]
