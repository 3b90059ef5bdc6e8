"""The same library under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fgpu.limits import rewrite
from fgpu.mounts import BUILD
from fgpu.tests.host import GIB, MIB, OUT_OF_MEMORY, RUNTIMES, Host, Session, limit
from tests.wait import until

TESTS = Path(__file__).parent
ROOT = TESTS.parents[1]
SOURCES = sorted(path for folder in ("src", "arbiter", "sim") for path in (TESTS.parent / folder).glob("*.c"))
OUT_OF_PLACE = (
    "test_scope.py",  # orders of preloaded libraries: the sanitizer's must be the first
    "test_library.py::test_a_program_without_gpu_is_untouched_by_the_hook",  # so must it here
    "test_processes.py::test_a_wall_clock_that_is_set_refuses_nobody",
    "test_routing.py::test_rtld_next_still_means_after_the_caller",
    "test_arbiter.py::test_forked_children_and_closed_connections_are_harmless",  # closes what another thread uses
    "test_arbiter.py::test_short_lived_processes_get_the_share_and_no_more",  # thousands, each with the runtime
    "test_bench.py",  # times
    "test_growth.py",
    "test_sanitizers.py",
)
FALSE_ALARMS = {  # of gcc 12
    "ledger.c": "malloc-leak",  # what the table of entries holds
    "cuda_graph.c": "malloc-leak",  # and what a graph has
    "cuda_run.c": "malloc-leak",  # and the commands of a stream
    "queues.c": "use-after-free",  # it does not see that a queue that is destroyed leaves its list
}


def sanitized(host: Host, kind: str, sm: str = "25") -> Session:
    """A session whose hook is the sanitized build."""
    return host.session(limit(sm=sm), hook=f"test/libfgpu-{kind}.so")


@pytest.mark.parametrize("kind", RUNTIMES)
def test_threads_that_allocate_launch_and_free_leave_a_clean_account(host: Host, kind: str) -> None:
    session = sanitized(host, kind, sm="99")
    host.arbiter()
    process = session.start("test/threads")
    text = session.limits.read_text()

    def has_ended() -> bool:
        rewrite(session.limits, text)
        return process.poll() is not None

    assert until(has_ended, seconds=200)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    assert output.split() == [str(2 * GIB), str(2 * GIB)]


@pytest.mark.parametrize("kind", RUNTIMES)
def test_every_allocator_is_clean(host: Host, kind: str) -> None:
    with sanitized(host, kind).probe() as probe:
        for how in ["plain", "pitch", "managed", "async", "pool", "vmm", "array", "array_mipmap", "graph", "captured"]:
            assert probe.alloc(GIB, how) == 0
            assert probe.alloc(3 * GIB, how, 1) == OUT_OF_MEMORY
            assert probe.ask("free 0")
            assert probe.code("sync") == 0
        assert probe.code("unpool") == 0
        assert probe.ask(f"fork {MIB}") == ["3", "0"]
        assert len(probe.ask("nvml")) >= 7
    assert probe.process.returncode == 0


@pytest.mark.parametrize("governed", [False, True])
@pytest.mark.parametrize("kind", RUNTIMES)
def test_the_gate_is_clean(host: Host, kind: str, governed: bool) -> None:
    session = sanitized(host, kind)
    clock = {"FGPU_SIM_CLOCK": "virtual", "FGPU_SIM_PARTIES": str(1 + governed)}
    if governed:
        host.arbiter(**clock)
    process = session.start("test/load", "streams", "200", "500", **clock)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    assert float(output.split()[0]) == pytest.approx(25, abs=3)


@pytest.mark.long(minutes=6)
@pytest.mark.parametrize("kind", RUNTIMES)
def test_all_tests_of_the_hook_are_clean(kind: str, built: Path) -> None:
    left_out = [f"--deselect={TESTS.relative_to(ROOT) / name}" for name in OUT_OF_PLACE]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not docker and not long", *left_out, str(TESTS)]
    environment = os.environ | {"FGPU_SANITIZER": kind}
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.long(minutes=1)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_symbolic_execution_finds_no_fault(source: Path, built: Path, tmp_path: Path) -> None:
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", f"-I{BUILD}", "-fanalyzer", "-Werror"]
    if known := FALSE_ALARMS.get(source.name):
        flags.append(f"-Wno-analyzer-{known}")
    subprocess.run(["gcc", *flags, "-c", "-o", tmp_path / "object", source], check=True)
