"""What idle is: unknown figures never are, and a replay comes to what the rule itself decides."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sessions.idle_rules import (
    IdleCause,
    IdleLimits,
    PeriodUse,
    WindowUse,
    contradicts,
    first_idle,
    is_unused,
    known_mean,
    low_use,
    periods_in,
    start_of_period,
)

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUIET = PeriodUse(cpu_milli=10, cpu_percent=0.5, gpu_percent=0.0, network_bytes=500, has_gpu=True, was_used=False)
BUSY = replace(QUIET, cpu_milli=900, cpu_percent=45.0, gpu_percent=80.0)
UNUSED = IdleLimits(idle_timeout=HOUR)
LOW = IdleLimits(low_use_window=HOUR, low_use_cpu_percent=10, low_use_gpu_percent=5)


@pytest.mark.parametrize(
    ("changes", "is_idle"),
    [
        ({}, True),
        ({"was_used": True}, False),
        ({"cpu_milli": 100}, False),
        ({"gpu_percent": 1.0}, False),
        ({"network_bytes": 100_000}, False),
        ({"cpu_milli": None}, False),
        ({"gpu_percent": None}, False),
        ({"network_bytes": None}, False),
        ({"gpu_percent": None, "has_gpu": False}, True),
    ],
)
def test_only_what_is_known_to_be_quiet_is_idle(changes: dict[str, object], is_idle: bool) -> None:
    assert replace(QUIET, **changes).is_idle == is_idle  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("idle_periods", "unused_for", "is_met"), [(12, HOUR, True), (11, HOUR, False), (12, 59 * MINUTE, False)]
)
def test_the_timeout_takes_every_period_and_no_use(idle_periods: int, unused_for: timedelta, is_met: bool) -> None:
    assert is_unused(UNUSED, WindowUse(idle=idle_periods), NOW - unused_for, NOW) == is_met
    assert not is_unused(LOW, WindowUse(idle=99), NOW - HOUR, NOW)


@pytest.mark.parametrize(
    ("limits", "use", "has_gpu", "is_met"),
    [
        (LOW, {"cpu_percent": 9.0, "gpu_percent": 4.0}, True, True),
        (LOW, {"cpu_percent": 10.0, "gpu_percent": 4.0}, True, False),
        (LOW, {"cpu_percent": 9.0, "gpu_percent": 5.0}, True, False),
        (LOW, {"cpu_percent": 9.0, "gpu_percent": None}, True, False),
        (LOW, {"cpu_percent": None, "gpu_percent": 1.0}, True, False),
        (LOW, {"cpu_percent": 9.0, "gpu_percent": None}, False, True),
        (replace(LOW, low_use_cpu_percent=None), {"cpu_percent": 99.0, "gpu_percent": 1.0}, True, True),
        (replace(LOW, low_use_cpu_percent=None), {"cpu_percent": 1.0, "gpu_percent": None}, False, False),
    ],
)
def test_low_use_is_below_every_limit_that_applies(
    limits: IdleLimits, use: dict[str, float | None], has_gpu: bool, is_met: bool
) -> None:
    sums: dict[str, float] = {}
    for name, mean in use.items():
        if mean is not None:
            sums |= {name: 12 * mean, name.replace("percent", "periods"): 12}
    found = low_use(limits, WindowUse(**sums), has_gpu=has_gpu)  # type: ignore[arg-type]
    assert (found is not None) == is_met
    if sums.get("cpu_periods"):
        fewer = replace(WindowUse(**sums), cpu_periods=11, gpu_periods=11)  # type: ignore[arg-type]
        assert low_use(limits, fewer, has_gpu=has_gpu) is None


def test_the_newest_records_speak_against_an_end() -> None:
    for cause in IdleCause:
        assert not contradicts(LOW, cause, QUIET)
        assert contradicts(LOW, cause, BUSY)
        assert contradicts(LOW, cause, replace(QUIET, cpu_milli=None, cpu_percent=None))


def test_a_replay_warns_and_ends_as_the_rule_would() -> None:
    assert first_idle(UNUSED, [QUIET] * 11, HOUR) is None
    assert first_idle(UNUSED, [QUIET] * 30, HOUR) == (11, 23)
    assert first_idle(UNUSED, [QUIET] * 20 + [BUSY] + [QUIET] * 30, HOUR) == (32, 44)
    assert first_idle(UNUSED, [QUIET] * 20 + [None] + [QUIET] * 23, HOUR) is None
    assert first_idle(LOW, [BUSY] * 12 + [QUIET] * 20, 10 * MINUTE) == (23, 25)
    assert first_idle(LOW, [QUIET] * 8 + [None] + [QUIET] * 12, 10 * MINUTE) is None
    assert first_idle(LOW, [QUIET] * 8 + [None] + [QUIET] * 14, 10 * MINUTE) == (20, 22)


def test_periods_and_means_round_to_the_safe_side() -> None:
    assert start_of_period(NOW + 4.9 * MINUTE) == NOW
    assert [periods_in(span * MINUTE) for span in (10, 11, 60)] == [2, 3, 12]
    assert [known_mean(2.0, count, 30) for count in (30, 15, 14)] == [2.0, 2.0, None]
    assert known_mean(None, 0, 0) is None
