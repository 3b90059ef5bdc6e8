"""The choice among replicas, and rates of tokens, without connections."""

import pytest

from proxy.balancing.figures import FigureCounts
from proxy.balancing.rates import WINDOW_SECONDS, TokenRates
from proxy.balancing.replicas import BalancedReplica, by_key, least_outstanding
from proxy.budgets import TokenUse
from proxy.counters import CounterMemory, LocalCounters, SharedCounters
from proxy.tests.site import replica, token


def replicas(*counts: int) -> list[BalancedReplica]:
    """Return replicas with so many outstanding requests."""
    made = [BalancedReplica(replica(number).route, LocalCounters().counter("")) for number in range(len(counts))]
    for each, count in zip(made, counts, strict=True):
        each.outstanding.add(count)
    return made


@pytest.mark.parametrize(
    ("counts", "start", "chosen"),
    [
        ((2, 1, 3), 0, 1),
        ((1, 2, 0), 1, 2),
        ((0, 2, 1), 2, 0),
        ((0, 0, 0), 0, 0),
        ((0, 0, 0), 2, 2),
        ((0, 1, 0), 1, 2),
        ((5,), 3, 0),
        ((0, 0), 1024, 0),
    ],
)
def test_the_fewest_outstanding_win_and_equals_take_turns(counts: tuple[int, ...], start: int, chosen: int) -> None:
    assert least_outstanding(replicas(*counts), start) == chosen


def test_a_replica_that_goes_moves_its_keys_alone() -> None:
    all_ = replicas(0, 0, 0, 0)
    keys = [b"%d" % number for number in range(200)]
    before = {key: by_key(all_, key) for key in keys}
    assert {sum(each is found for found in before.values()) > 20 for each in all_} == {True}
    after = {key: by_key(all_[1:], key) for key in keys}
    assert all(after[key] is before[key] for key in keys if before[key] is not all_[0])


def test_a_rate_holds_for_a_minute_and_then_makes_room() -> None:
    clock = [100.0]
    rates = TokenRates(LocalCounters(), lambda: clock[0])
    limited = token(rate=3)
    assert [rates.admit(limited) for _ in range(3)] == [0, 0, 0]
    clock[0] += 10
    assert rates.admit(limited) == WINDOW_SECONDS - 10
    clock[0] += WINDOW_SECONDS - 10
    assert [rates.admit(limited) for _ in range(4)] == [0, 0, 0, WINDOW_SECONDS]
    assert [rates.admit(token(2)) for _ in range(9)] == [0] * 9
    clock[0] += WINDOW_SECONDS
    rates.forget()
    assert rates._spent == {}


def test_what_is_forgotten_makes_room_in_other_processes() -> None:
    clock = [100.0]
    counters = SharedCounters(CounterMemory(1))
    rates = TokenRates(counters, lambda: clock[0])
    rates.admit(token(rate=3))
    row, (first, _) = counters._row, counters._columns("rate 1")
    assert row[first] == 1
    clock[0] += WINDOW_SECONDS
    rates.forget()
    assert row[first] == 0


def test_figures_begin_anew_once_taken() -> None:
    counts = FigureCounts()
    counts.count(0.004, 10, TokenUse(0, 5, 2), is_error=False)
    counts.count(0.005, 10, TokenUse(), is_error=True)
    counts.count(1e6, 10, TokenUse(0, 1, 1), is_error=False)
    counts.reject()
    taken = counts.take("d1", "r1", 4)
    assert (taken.requests, taken.errors, taken.rejected, taken.outstanding) == (3, 1, 1, 4)
    assert (taken.durations[0], taken.durations[-1], sum(taken.durations)) == (2, 1, 3)
    assert (taken.sent_bytes, taken.prompt_tokens, taken.completion_tokens) == (30, 6, 3)
    assert counts.is_empty
    assert counts.take("d1", "r1", 0).prompt_tokens == 0
