"""What the watchdog makes of what it sees, as a table."""

import pytest

from hostworker.violations import GpuAllowance, GpuUse, assess
from resources.units import GIB, MIB
from sessions.lifecycle import Reason

HERE = ("session", "GPU-1")
ELSEWHERE = ("session", "GPU-2")
CONTEXT = 512 * MIB
SHARE = {HERE: GpuAllowance(memory_bytes=2 * GIB, is_hooked=True)}
WHOLE = {HERE: GpuAllowance(memory_bytes=8 * GIB, is_hooked=False)}
MOST = 2 * GIB * 105 // 100 + 2 * CONTEXT  # of two processes


def use(memory: int, processes: int = 1, unhooked: int = 0) -> GpuUse:
    return GpuUse(memory_bytes=memory, processes=processes, unhooked=unhooked)


def test_use_within_share_contexts_and_tolerance_is_allowed() -> None:
    assessment = assess({HERE: use(MOST, 2)}, SHARE, {HERE}, CONTEXT)
    assert not assessment.violations
    assert not assessment.warned


def test_an_excess_ends_the_session_at_the_second_look_only() -> None:
    seen = {HERE: use(MOST + 1, 2)}
    first = assess(seen, SHARE, (), CONTEXT)
    assert not first.violations
    assert first.warned == {HERE}
    second = assess(seen, SHARE, first.warned, CONTEXT)
    reason, words = second.violations["session"]
    assert reason == Reason.GPU_LIMIT_EXCEEDED
    assert words == "It used 3.1 GiB of GPU memory; its share is 2 GiB."


def test_a_device_that_the_session_does_not_hold_allows_nothing() -> None:
    assert assess({ELSEWHERE: use(CONTEXT + 1)}, SHARE, {ELSEWHERE}, CONTEXT).violations.keys() == {"session"}


def test_a_process_without_the_hook_ends_the_session_at_once() -> None:
    violations = assess({HERE: use(MIB, 2, unhooked=1)}, SHARE, (), CONTEXT).violations
    assert violations["session"][0] == Reason.HOOK_BYPASSED


@pytest.mark.parametrize("memory", [MIB, 8 * GIB])
def test_a_session_with_the_whole_device_needs_no_hook(memory: int) -> None:
    assessment = assess({HERE: use(memory, unhooked=1)}, WHOLE, {HERE}, CONTEXT)
    assert assessment.violations == {}
