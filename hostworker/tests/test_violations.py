"""What the watchdog makes of what it sees, as a table."""

from collections.abc import Mapping

import pytest

from hostworker.gpus.violations import GpuAllowance, GpuUse, assess, assess_time
from resources.amounts.units import GIB, MIB
from sessions.lifecycle import Reason

HERE = ("session", "GPU-1")
ELSEWHERE = ("session", "GPU-2")
CONTEXT = 512 * MIB
SHARE = {HERE: GpuAllowance(memory_bytes=2 * GIB, is_hooked=True, percent=25)}
LARGE = {HERE: GpuAllowance(memory_bytes=40 * GIB, is_hooked=True, percent=50)}
WHOLE = {HERE: GpuAllowance(memory_bytes=None, is_hooked=False)}
MOST = 2 * GIB + CONTEXT


def use(memory: int, unhooked: int = 0) -> GpuUse:
    return GpuUse(memory_bytes=memory, unhooked=unhooked)


@pytest.mark.parametrize(("most", "shares"), [(MOST, SHARE), (42 * GIB, LARGE)])
def test_use_within_share_and_tolerance_is_allowed(most: int, shares: dict[tuple[str, str], GpuAllowance]) -> None:
    assessment = assess({HERE: use(most)}, shares, {HERE}, CONTEXT)
    assert not assessment.violations
    assert not assessment.warned
    assert assess({HERE: use(most + 1)}, shares, {HERE}, CONTEXT).violations


def test_an_excess_ends_the_session_at_the_second_look_only() -> None:
    seen = {HERE: use(MOST + GIB // 2)}
    first = assess(seen, SHARE, (), CONTEXT)
    assert not first.violations
    assert first.warned == {HERE}
    second = assess(seen, SHARE, first.warned, CONTEXT)
    reason, words = second.violations["session"]
    assert reason == Reason.GPU_LIMIT_EXCEEDED
    assert words == "It used 3 GiB of GPU memory; its share is 2 GiB."


def test_a_device_that_the_session_does_not_hold_allows_nothing() -> None:
    assert assess({ELSEWHERE: use(CONTEXT + 1)}, SHARE, {ELSEWHERE}, CONTEXT).violations.keys() == {"session"}


def test_a_process_without_the_hook_ends_the_session_at_once() -> None:
    violations = assess({HERE: use(MIB, unhooked=1)}, SHARE, (), CONTEXT).violations
    assert violations["session"][0] == Reason.HOOK_BYPASSED


@pytest.mark.parametrize("memory", [MIB, 8 * GIB])
def test_a_session_with_the_whole_device_needs_no_hook(memory: int) -> None:
    assessment = assess({HERE: use(memory, unhooked=1)}, WHOLE, {HERE}, CONTEXT)
    assert assessment.violations == {}


def test_session_ends_after_three_windows_above_its_share() -> None:
    counts: list[int] = []
    overruns: Mapping[tuple[str, str], int] = {}
    violations: Mapping[str, tuple[Reason, str]] = {}
    for percent in (36.0, 36.0, 35.0, 36.0, None, 36.0, 60.0):  # 35 is within the tolerance; None is not known
        assessment = assess_time({HERE: percent}, SHARE, overruns)
        overruns, violations = assessment.overruns, assessment.violations
        counts.append(overruns.get(HERE, 0))
        assert bool(violations) == (percent == 60)
    assert counts == [1, 2, 0, 1, 1, 2, 3]
    assert violations["session"] == (
        Reason.GPU_TIME_EXCEEDED,
        "It took 60 % of the GPU's time; its share is 25 %.",
    )


def test_whole_and_ungated_devices_have_no_time_limit() -> None:
    assert assess_time({HERE: 100.0}, WHOLE, {HERE: 5}).violations == {}
