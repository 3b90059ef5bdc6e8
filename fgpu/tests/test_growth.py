"""What a call costs does not grow with how much a program has: four times as much is at most a quarter dearer each."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from fgpu.tests.host import Host, Session, limit

ROUNDS = 16
GATED, UNGATED = "99", "100"
STREAMS = 250
BLOCKS = 100_000
MOST_GROWTH = 5 / 4


def growth(measure: Callable[[int], float], amount: int) -> float:
    """Return how much dearer a call is with four times the amount, of which others only make both figures larger.

    Each is the least of as many rounds as it takes to be within MOST_GROWTH, of ROUNDS at most.
    """
    small = large = inf
    for _ in range(ROUNDS):
        small, large = min(small, measure(amount)), min(large, measure(4 * amount))
        if large / small <= MOST_GROWTH:
            break
    return large / small


def launch_cost(session: Session, streams: int, column: int) -> float:
    return float(session.run("test/cost", "20000", str(streams)).split()[column])


@pytest.mark.parametrize("column", [0, 1], ids=["on each of them", "on one afterwards"])
def test_a_launch_costs_the_same_with_more_streams(host: Host, column: int) -> None:
    session = host.session(limit(sm=GATED))
    assert growth(lambda streams: launch_cost(session, streams, column), STREAMS) <= MOST_GROWTH


def test_an_allocation_costs_the_same_with_more_held(host: Host) -> None:
    session = host.session(limit(sm=UNGATED))
    assert growth(lambda held: float(session.run("test/cost", "20000", "0", str(held))), BLOCKS) <= MOST_GROWTH
