"""The one limits function."""

import pytest

from accounts.limits import Amounts, PolicyLimits, exceeded, remaining

LIMITS = PolicyLimits(cpu=8, memory=100, fgpu=2000, sessions=2, pending=5)


def test_remaining_is_limit_minus_usage_and_never_negative() -> None:
    left = remaining(LIMITS, Amounts(cpu=3, memory=150, fgpu=500, sessions=2))
    assert left == PolicyLimits(cpu=5, memory=0, fgpu=1500, sessions=0, pending=5)


def test_an_empty_limit_stays_unlimited() -> None:
    assert remaining(PolicyLimits(), Amounts(cpu=1000)) == PolicyLimits()
    assert exceeded(PolicyLimits(), Amounts(cpu=1000, memory=1, fgpu=1, sessions=1)) == ()


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (Amounts(cpu=8, memory=100, fgpu=2000, sessions=2), ()),
        (Amounts(cpu=9), ("cpu",)),
        (Amounts(memory=101, sessions=3), ("memory", "sessions")),
        (Amounts(fgpu=2010), ("fgpu",)),
    ],
)
def test_only_amounts_above_the_limit_are_named(asked: Amounts, names: tuple[str, ...]) -> None:
    assert exceeded(LIMITS, asked) == names
