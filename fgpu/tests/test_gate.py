"""The share of the SMs, measured on the simulated timeline under a virtual clock: exact, whatever the machine does."""

from __future__ import annotations

import struct

import pytest

from fgpu.simulated import TimeSlicing
from fgpu.tests.host import UUIDS, Host, Session, limit
from fgpu.tests.region import GPU_BASE
from fgpu.tests.sharing import Load, contend, run_beside

TOLERANCE = 3.0  # percentage points
SHARES = [10.0, 25.0, 50.0, 100.0]
PATTERNS = ["sync", "async", "graph", "streams", "steps", "mixed", "in-turns"]
LAUNCHES = ["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch"]
PER_THREAD = [f"{name}_ptsz" for name in LAUNCHES]
OLD = ["cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync"]


def busy(
    session: Session, *load: object, parties: int = 1, beside: tuple[Session, ...] = (), column: int = 0
) -> list[float]:
    """Run one load per session (or `parties` in one session) at once; return each one's figure in percent."""
    sessions = [session, *beside] if beside else [session] * parties
    clock = {"FGPU_SIM_CLOCK": "virtual", "FGPU_SIM_PARTIES": str(len(sessions))}
    processes = [one.start("test/load", *map(str, load), **clock) for one in sessions]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    return [float(output.split()[column]) for output in outputs]


def share(host: Host, percent: float, phase_ms: int = 0) -> Session:
    return host.session(limit(sm=f"{percent:g}", phase_ms=phase_ms))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("percent", SHARES)
def test_one_process_gets_its_share(host: Host, percent: float, pattern: str) -> None:
    [seen] = busy(share(host, percent), pattern, 1000, 4000)
    assert seen == pytest.approx(percent, abs=TOLERANCE)


@pytest.mark.parametrize("name", [*LAUNCHES, *PER_THREAD, *OLD])
def test_every_function_that_launches_is_gated(host: Host, name: str) -> None:
    [free] = busy(host.bare(), name, 1000, 1000)
    [seen] = busy(share(host, 25), name, 1000, 4000)
    assert free == pytest.approx(100, abs=1)
    assert seen == pytest.approx(25, abs=TOLERANCE)


@pytest.mark.parametrize("pattern", ["sync", "async", "graph"])
@pytest.mark.parametrize("percent", SHARES)
def test_four_processes_share_one_share(host: Host, percent: float, pattern: str) -> None:
    host.configure(gpus=1, slicing=TimeSlicing(switch_us=0))  # switching among its own processes costs the session
    seen = busy(share(host, percent), pattern, 1000, 3000, parties=4)
    assert seen == pytest.approx([percent] * 4, abs=TOLERANCE)


@pytest.mark.parametrize("microseconds", [20, 100, 5000, 30_000])
@pytest.mark.parametrize("pattern", ["async", "graph"])
def test_the_length_of_the_kernels_does_not_matter(host: Host, pattern: str, microseconds: int) -> None:
    [seen] = busy(share(host, 25), pattern, microseconds, 8000)
    assert seen == pytest.approx(25, abs=TOLERANCE)


@pytest.mark.parametrize("pattern", ["crowd", "streams", "in-turns"])
def test_short_kernels_on_many_streams_get_their_share(host: Host, pattern: str) -> None:
    """Most are behind those of other streams, with no event of their own."""
    [seen] = busy(share(host, 25), pattern, 20, 4000)
    assert seen == pytest.approx(25, abs=1)


def test_a_kernel_longer_than_the_frame_is_paid_back(host: Host) -> None:
    [seen] = busy(share(host, 10), "async", 400_000, 60_000)
    assert seen == pytest.approx(10, abs=TOLERANCE)


def test_kernels_of_many_seconds_are_paid_back_too(host: Host) -> None:
    [seen] = busy(share(host, 25), "async", 20_000_000, 600_000)
    assert seen == pytest.approx(25, abs=TOLERANCE)


def test_a_launch_that_a_kernel_waits_for_goes_ahead(host: Host) -> None:
    """Waiting out a debt of 60 s at 10 % would take ten minutes, and for ever if the kernel waits for the launch."""
    [milliseconds] = busy(share(host, 10), "stuck", 60_000_000, 0)
    assert milliseconds == pytest.approx(10_000, rel=0.1)


def test_a_stream_that_waits_for_the_program_takes_its_launches(host: Host) -> None:
    """For a value that the host writes, or a function of the host: it may do so after the last of them only."""
    [milliseconds] = busy(share(host, 10), "behind", 1000, 0)
    assert milliseconds < 1_500


@pytest.mark.parametrize("waits", [1, 10])
@pytest.mark.parametrize("arbiter", [False, True])
def test_launches_behind_an_unfinished_wait_return(host: Host, arbiter: bool, waits: int) -> None:
    """Three kernels of a millisecond each before the wait are all that may be waited for; the wait takes a minute."""
    load = Load("awaited", 1000, 0, waits)
    [[milliseconds]] = run_beside([(share(host, 90), load)], arbiter=arbiter)
    assert milliseconds < 10


@pytest.mark.parametrize("arbiter", [False, True])
def test_a_wait_behind_unfinished_work_is_not_charged(host: Host, arbiter: bool) -> None:
    """A few kernels of a millisecond, then seconds in which their stream waits, with more of them behind."""
    load = Load("queued-behind", 1000, 30_000)
    [[free, *_]] = run_beside([(host.bare(), load)], arbiter=False)
    [[gated, *_]] = run_beside([(share(host, 20), load)], arbiter=arbiter)
    assert gated == pytest.approx(free, rel=0.05)


@pytest.mark.parametrize("microseconds", [20, 100])
def test_streams_that_wait_for_each_other_get_their_share(host: Host, microseconds: int) -> None:
    seen, _ = contend(host, [25, 50], Load("in-turns", microseconds, 3000))
    assert seen == pytest.approx([25, 50], abs=TOLERANCE)


def test_a_kernel_behind_a_wait_is_paid_whole(host: Host) -> None:
    """Also where work before it was charged by an estimate."""
    [seen] = busy(share(host, 25), "tail", 280, 4000, 1000)
    assert seen == pytest.approx(25, abs=0.5)


def test_what_was_launched_on_a_waiting_stream_is_paid(host: Host) -> None:
    """Two seconds of kernels each time, which run without a pause once the stream goes on."""
    [free] = busy(host.bare(), "queued", 100_000, 100_000)
    [seen] = busy(share(host, 25), "queued", 100_000, 200_000)
    assert free == pytest.approx(50, abs=1)
    assert seen == pytest.approx(25, abs=TOLERANCE)


def test_without_the_hook_a_program_takes_the_whole_gpu(host: Host) -> None:
    assert busy(host.bare(), "async", 1000, 1000) == pytest.approx([100], abs=1)


def test_a_program_that_pauses_is_slowed_only_beyond_its_share(host: Host) -> None:
    """50 ms of work, then 150 ms of pause: 25 % of the GPU of its own accord."""
    [free] = busy(host.bare(), "steps", 1000, 4000, 150_000)
    [gated] = busy(share(host, 60), "steps", 1000, 4000, 150_000)
    assert gated == pytest.approx(free, abs=TOLERANCE)


def test_a_waiting_stream_is_not_charged(host: Host) -> None:
    [free] = busy(host.bare(), "held", 1000, 4000)
    [gated] = busy(share(host, 20), "held", 1000, 4000)
    assert gated == pytest.approx(free, rel=0.05)


def test_idle_time_is_not_saved_up_for_a_burst(host: Host) -> None:
    """Bursts of 50 ms, a second apart, take about 450 ms each at 10 %, however long nothing was used before."""
    [seen] = busy(share(host, 10), "steps", 1000, 15_000, 1_000_000)
    assert seen == pytest.approx(100 * 50 / 1450, abs=0.3)


def test_a_greedy_neighbour_of_the_session_changes_nothing(host: Host) -> None:
    [seen, _] = busy(share(host, 25), "async", 1000, 4000, beside=(share(host, 50, phase_ms=25),), column=1)
    assert seen == pytest.approx(25, abs=TOLERANCE)


def test_launches_recorded_into_a_graph_do_not_wait(host: Host) -> None:
    """The load records its graph first: if capturing launches were gated, events in the capture would spoil it."""
    session = share(host, 1)
    [seen] = busy(session, "graph", 1000, 4000)
    assert seen == pytest.approx(1, abs=TOLERANCE)


def test_utilisation_is_shown_as_percent_of_the_share(host: Host) -> None:
    session = share(host, 25)
    clock = {"FGPU_SIM_CLOCK": "virtual"}
    busy(session, "async", 1000, 4900)
    query = ("sim/nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    assert int(session.run(*query, **clock)) == 100
    assert int(host.bare().run(*query, **clock)) == pytest.approx(25, abs=TOLERANCE)


def test_a_graph_passes_the_gate_of_its_streams_gpu(host: Host) -> None:
    host.configure(gpus=2)
    session = host.session(limit(UUIDS[0], sm="25"), limit(UUIDS[1], sm="100"))
    [seen] = busy(session, "elsewhere", 1000, 4000)
    assert seen == pytest.approx(25, abs=TOLERANCE)


def test_a_whole_gpu_is_not_gated_beside_a_gated_one(host: Host) -> None:
    host.configure(gpus=2)
    session = host.session(limit(UUIDS[0], sm="100"), limit(UUIDS[1], sm="25"))
    assert busy(session, "async", 1000, 1000) == pytest.approx([100], abs=1)
    [frame] = struct.unpack_from("<Q", session.region.read_bytes(), GPU_BASE)
    assert frame == 0
