"""The same library under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import subprocess

import pytest

from fgpu.limits import rewrite
from fgpu.tests.host import GIB, MIB, OUT_OF_MEMORY, Host, Session, limit
from tests.wait import until

RUNTIMES = {"asan": ("libasan.so", "libubsan.so"), "tsan": ("libtsan.so",)}


def sanitized(host: Host, kind: str, sm: str = "25") -> Session:
    """A session whose hook is the sanitized build, with the sanitizer's runtime loaded before it."""
    session = host.session(limit(sm=sm), hook=f"test/libfgpu-{kind}.so")
    find = (
        subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in RUNTIMES[kind]
    )
    session.extra["LD_PRELOAD"] = ":".join([*find, session.environment()["LD_PRELOAD"]])
    session.extra["ASAN_OPTIONS"] = (
        "detect_leaks=0:exitcode=99"  # the stub leaks, the hook must not touch what is freed
    )
    session.extra["UBSAN_OPTIONS"] = "halt_on_error=1:exitcode=99"
    session.extra["TSAN_OPTIONS"] = "exitcode=99:halt_on_error=1"
    return session


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
