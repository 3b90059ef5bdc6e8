"""Threads of one program that launch at once, under a virtual clock."""

from __future__ import annotations

import struct

import pytest

from fgpu.tests.host import HOOK, RUNTIMES, Host, Session, limit
from fgpu.tests.region import GPU_BASE, GPU_BYTES

SECONDS = 4  # that the account remembers


def run_together(session: Session, pattern: str, number: int, *, arbiter: bool = False) -> float:
    """Return the figure that the pattern prints."""
    clock = {"FGPU_SIM_CLOCK": "virtual", "FGPU_SIM_PARTIES": str(1 + arbiter)}
    if arbiter:
        session.host.arbiter(**clock)
    process = session.start("test/together", pattern, str(number), **clock)
    return float(process.communicate(timeout=60)[0])


def charged_ns(session: Session) -> int:
    """Return for how many ns the GPU was seen to work for the session, in the seconds that its account remembers."""
    at = GPU_BASE + GPU_BYTES - SECONDS * 8
    return sum(struct.unpack_from(f"<{SECONDS}Q", session.region.read_bytes(), at))


@pytest.mark.parametrize(("arbiter", "least"), [(False, 22), (True, 15)])
def test_a_kernel_behind_another_threads_event_is_paid(host: Host, arbiter: bool, least: float) -> None:
    """Its thread has passed the gate when the other one ends what is measured together. In turns, pauses are paid."""
    seen = run_together(host.session(limit(sm="25")), "late", 4000, arbiter=arbiter)
    assert least < seen < 28
    assert run_together(host.bare(), "late", 1000) > 45


HOOKS = [HOOK, *(f"test/libfgpu-{kind}.so" for kind in RUNTIMES)]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kernels", [0, 2])
def test_a_stream_may_end_under_a_launch(host: Host, kernels: int, hook: str) -> None:
    """The hook ends it when nobody is at it any more, and what was launched there is charged."""
    session = host.session(limit(sm="99"), hook=hook)
    executed = run_together(session, "destroy", kernels)
    assert executed == (kernels + 1) * 1_000_000
    assert charged_ns(session) >= executed


@pytest.mark.parametrize("hook", HOOKS)
def test_all_that_threads_launch_is_charged(host: Host, hook: str) -> None:
    session = host.session(limit(sm="99"), hook=hook)
    executed = run_together(session, "crowd", 2500)
    assert executed > 1_000_000_000
    assert charged_ns(session) == pytest.approx(executed, rel=0.02)


@pytest.mark.parametrize(
    ("pattern", "commands"), [("full", 1017), ("full", 1018), ("full", 1019), ("begin", 1024), ("tail", 1023)]
)
def test_a_full_stream_holds_up_no_other_thread(host: Host, pattern: str, commands: int) -> None:
    """The driver makes who sends one command more wait, for a second: also the hook's, for its own events."""
    assert run_together(host.session(limit(sm="99")), pattern, commands) < 20


@pytest.mark.parametrize(("pattern", "least", "most"), [("end", 0, 1), ("record", 10_000, 12_000)])
def test_no_call_waits_for_ever_behind_an_event(host: Host, pattern: str, least: float, most: float) -> None:
    """The hook's, on a stream that is full for 20 s: which might be until the program does what follows that call."""
    assert least <= run_together(host.session(limit(sm="99")), pattern, 1023) <= most


@pytest.mark.parametrize("after_us", [0, 1500])
def test_a_green_context_ends_with_launches_in_flight(host: Host, after_us: int) -> None:
    """The simulated driver aborts where its context is named after that."""
    assert run_together(host.session(limit(sm="99")), "green", after_us) == 2_200_000


def test_a_context_is_not_reset_under_an_event(host: Host) -> None:
    """The hook's, behind launches that had none, on a stream that is full for 200 ms. The simulated driver aborts."""
    assert 150 < run_together(host.session(limit(sm="99")), "reset", 1023) < 250


@pytest.mark.parametrize("after_us", [0, 300, 500])
def test_no_driver_is_asked_after_its_end(host: Host, after_us: int) -> None:
    """The simulated one aborts then. What it is asked at the end of a program depends on when it was asked last."""
    process = host.session(limit(sm="99")).start("test/together", "leave", str(after_us), FGPU_SIM_CLOCK="virtual")
    process.communicate(timeout=60)
    assert process.returncode == 0
