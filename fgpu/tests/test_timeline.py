"""The simulated GPUs share their time between processes as the model says: slices, switches, interruption, death."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fgpu.simulated import TimeSlicing
from fgpu.tests.host import Host, limit
from fgpu.tests.sharing import Load, contend, run_beside, sessions_of

UTILISATION = """
import json, pynvml as n
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(0)
try:
    print(json.dumps({s.pid: s.smUtil for s in n.nvmlDeviceGetProcessUtilization(d, 0)}))
except n.NVMLError_NotFound:
    print("{}")
"""


@pytest.mark.parametrize("neighbours", [1, 2, 4])
def test_a_kernel_takes_longer_with_every_neighbour(host: Host, neighbours: int) -> None:
    """20 ms kernels one by one: alone 20 ms, beside others their slices and the switches as well."""
    loads = [(session, Load("sync", 20_000)) for session in sessions_of(host, [100] * neighbours, hooked=False)]
    longest = [figures[2] for figures in run_beside(loads, arbiter=False)]
    expected = 20 if neighbours == 1 else 20 * neighbours * 2.1 / 2
    assert longest == pytest.approx([expected] * neighbours, rel=0.06)


@pytest.mark.parametrize(("slice_us", "switch_us"), [(1000, 0), (1000, 100), (2000, 100), (6000, 500)])
def test_each_switch_costs_time_in_which_nothing_runs(host: Host, slice_us: int, switch_us: int) -> None:
    host.configure(gpus=1, slicing=TimeSlicing(slice_us=slice_us, switch_us=switch_us))
    _, total = contend(host, [100, 100, 100], Load("async", 1000), gated=False)
    assert total == pytest.approx(100 * slice_us / (slice_us + switch_us), abs=0.5)


@pytest.mark.parametrize(("preempt", "expected"), [(True, 1.05 * 2), (False, 51)])
def test_without_preemption_a_short_kernel_waits_for_a_long_one(host: Host, preempt: bool, expected: float) -> None:
    host.configure(gpus=1, slicing=TimeSlicing(slice_us=1000, preempt=preempt))
    short, long = sessions_of(host, [100, 100], hooked=False)
    figures = run_beside([(short, Load("sync", 1000)), (long, Load("async", 50_000))], arbiter=False)
    assert figures[0][2] == pytest.approx(expected, rel=0.06)


def test_an_idle_context_may_keep_the_gpu_for_a_moment(host: Host) -> None:
    load = Load("sync", 1000, pause_us=1500)
    _, total = contend(host, [100] * 3, load, gated=False)
    host.configure(gpus=1, slicing=TimeSlicing(yield_us=1000))
    _, with_yield = contend(host, [100] * 3, load, gated=False)
    assert with_yield < total - 20


def test_the_work_of_a_killed_process_ends_with_it(host: Host) -> None:
    dying, other = sessions_of(host, [100, 100], hooked=False)
    loads = [(dying, Load("die", 10_000_000)), (other, Load("async", 1000))]
    figures = run_beside(loads, arbiter=False)
    assert figures[0] == []
    assert figures[1][1] > 98


def test_nvml_tells_what_each_process_used(host: Host) -> None:
    with host.bare().probe() as probe:
        assert probe.code("kernel") == 0
        assert probe.code("sync") == 0
        seen: dict[str, int] = {}
        while not seen:  # once the second is full
            command = [sys.executable, "-c", UTILISATION]
            output = subprocess.run(command, env=host.environment(), capture_output=True, text=True, check=True).stdout
            seen = json.loads(output)
        assert seen == {str(probe.pid): 0}  # a millisecond of a second: whole percent, as NVML has them


def test_a_session_without_a_share_of_time_is_not_slowed(host: Host) -> None:
    session = host.session(limit(sm="100"))
    [figures] = run_beside([(session, Load("async", 1000, 1000))], arbiter=False)
    assert figures[1] == pytest.approx(100, abs=1)
