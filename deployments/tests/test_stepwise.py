"""Rollouts by steps, as arithmetic: all small cases, and random stories in which anything dies. Each was seen to fail.

Broken were the number of old replicas in `plan`, `ceil` in `size`, the shares and the last one in
`weights`, and each comparison in `canary_move` and `worse`.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.replicas import rollout, stepwise
from deployments.replicas.rollout import ReplicaFact, RolloutPlan
from deployments.replicas.stepwise import Answered, Move, StepComparison, StepRules, StepwisePlan

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RULES = StepRules(seconds=60, max_error_points=1.0, max_p95_ratio=1.5)
KINDS = [(current, ready) for current in (False, True) for ready in (False, True)]
LIMITS = [(surge, unavailable) for surge, unavailable in product(range(3), range(3)) if surge + unavailable]


def facts(kinds: tuple[tuple[bool, bool], ...], prefix: str) -> list[ReplicaFact]:
    """Return replicas of these (is_current, is_ready), the oldest first."""
    return [
        ReplicaFact(id=f"{prefix}{number}", is_current=current, is_ready=ready, created_at=BEGIN + timedelta(number))
        for number, (current, ready) in enumerate(kinds)
    ]


def left(replicas: list[ReplicaFact], step: RolloutPlan) -> list[ReplicaFact]:
    return [each for each in replicas if each.id not in step.drains]


def ready(replicas: list[ReplicaFact]) -> int:
    return sum(each.is_ready for each in replicas)


def check_step(
    wanted: int, percent: int, limits: tuple[int, int], old: list[ReplicaFact], new: list[ReplicaFact]
) -> StepwisePlan:
    """Return the step, after what must hold of each."""
    surge, unavailable = limits
    step = stepwise.plan(wanted=wanted, percent=percent, surge=surge, unavailable=unavailable, old=old, new=new)
    assert ready(left(old, step.old)) >= min(ready(old), wanted - unavailable), "old replicas below what must stay"
    assert not set(step.old.drains) & {each.id for each in new}
    assert not set(step.new.drains) & {each.id for each in old}
    count = stepwise.size(wanted, percent)
    assert not step.new.launches or len(left(new, step.new)) + step.new.launches <= count + surge
    assert not step.old.launches or len(left(old, step.old)) + step.old.launches <= wanted + surge
    return step


def test_every_small_case_keeps_the_old_replicas() -> None:
    cases = 0
    for wanted, percent, limits in product(range(4), (1, 5, 50, 99, 100), LIMITS):
        for old_size, new_size in product(range(4), range(4)):
            for old in combinations_with_replacement(KINDS, old_size):
                new = ((True, bool(old_size % 2)),) * new_size
                check_step(wanted, percent, limits, facts(old, "o"), facts(new, "n"))
                cases += 1
    assert cases > 20_000


@pytest.mark.parametrize("limits", LIMITS)
def test_every_step_ends_with_its_replicas(limits: tuple[int, int]) -> None:
    for wanted, percent in product(range(5), (1, 5, 34, 50, 99, 100)):
        for size in range(4):
            for kinds in combinations_with_replacement(KINDS, size):
                _converge(wanted, percent, limits, facts(kinds, "o"), facts(kinds, "n"))


def _converge(
    wanted: int, percent: int, limits: tuple[int, int], old: list[ReplicaFact], new: list[ReplicaFact]
) -> None:
    for number in range(60):
        step = check_step(wanted, percent, limits, old, new)
        if step == StepwisePlan(old=RolloutPlan(), new=RolloutPlan()) and all(each.is_ready for each in old + new):
            break
        old = _grown(left(old, step.old), step.old.launches, f"lo{number}.")
        new = _grown(left(new, step.new), step.new.launches, f"ln{number}.")
    assert [each.is_current for each in old] == [True] * wanted
    assert [each.is_current for each in new] == [True] * stepwise.size(wanted, percent)
    assert stepwise.is_complete(wanted, percent, new) is (wanted > 0)


def _grown(replicas: list[ReplicaFact], launches: int, prefix: str) -> list[ReplicaFact]:
    new = [replace(each, is_ready=False) for each in facts(((True, False),) * launches, prefix)]
    return [replace(each, is_ready=True) for each in replicas] + new


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_stories_keep_the_old_ones_and_settle(data: st.DataObject) -> None:
    wanted, percent = data.draw(st.integers(0, 8)), 5
    limits = data.draw(st.sampled_from(LIMITS))
    old, new = facts(((True, True),) * wanted, "o"), list[ReplicaFact]()
    for number in range(data.draw(st.integers(0, 25))):
        chosen = data.draw(st.sampled_from([old, new]))
        match data.draw(st.sampled_from(["step", "step", "ready", "sick", "die", "scale", "next", "restart"])):
            case "scale":
                wanted = data.draw(st.integers(0, 8))
            case "next":
                percent = data.draw(st.integers(percent, 100))
            case "restart":
                old = [replace(each, is_current=False) for each in old]
                new = [replace(each, is_current=False) for each in new]
            case "die" if chosen:
                chosen.pop(data.draw(st.integers(0, len(chosen) - 1)))
            case "ready" | "sick" as change if chosen:
                which = data.draw(st.integers(0, len(chosen) - 1))
                chosen[which] = replace(chosen[which], is_ready=change == "ready")
            case _:
                step = check_step(wanted, percent, limits, old, new)
                old = left(old, step.old) + facts(((True, False),) * step.old.launches, f"so{number}.")
                new = left(new, step.new) + facts(((True, False),) * step.new.launches, f"sn{number}.")
    _converge(wanted, percent, limits, old, new)


def test_a_step_over_leaves_all_to_the_rolling_update() -> None:
    """The last step leaves wanted old and some new replicas, all ready: of which a rolling update makes all new."""
    for wanted, percent, (surge, unavailable) in product(range(1, 6), (5, 50, 99, 100), LIMITS):
        replicas = facts(((False, True),) * wanted + ((True, True),) * stepwise.size(wanted, percent), "r")
        for number in range(60):
            step = rollout.plan(wanted=wanted, surge=surge, unavailable=unavailable, replicas=replicas)
            assert ready(left(replicas, step)) >= wanted - unavailable
            if step == RolloutPlan() and ready(replicas) == len(replicas):
                break
            replicas = _grown(left(replicas, step), step.launches, f"l{number}.")
        assert [each.is_current for each in replicas] == [True] * wanted


@pytest.mark.parametrize(
    ("wanted", "percent", "replicas"),
    [(0, 50, 0), (1, 5, 1), (1, 50, 1), (4, 5, 1), (4, 50, 2), (5, 50, 3), (64, 5, 4), (3, 34, 2), (2, 100, 2)],
)
def test_a_share_has_its_replicas(wanted: int, percent: int, replicas: int) -> None:
    assert stepwise.size(wanted, percent) == replicas


@given(st.integers(0, 100), st.dictionaries(st.integers(1, 5), st.integers(0, 8)))
def test_weights_are_a_hundred_over_what_takes_requests(percent: int, found: dict[int, int]) -> None:
    weights = dict(stepwise.weights(5, percent, found))
    serving = {number for number, count in found.items() if count}
    assert set(weights) == serving
    assert sum(weights.values()) == (100 if serving else 0)
    assert all(weight >= 0 for weight in weights.values())
    if 5 in serving and serving != {5}:
        assert weights[5] == percent


def test_replicas_of_older_revisions_share_what_is_left() -> None:
    assert stepwise.weights(3, 10, {1: 1, 2: 2, 3: 1}) == ((1, 30), (2, 60), (3, 10))
    assert stepwise.weights(3, 0, {2: 2, 3: 1}) == ((2, 100), (3, 0))
    assert stepwise.weights(3, 0, {3: 1}) == ((3, 100),)


def compared(
    new: tuple[int, int, float | None], old: tuple[int, int, float | None] = (1000, 10, 0.1), last: float = 0.0
) -> StepComparison:
    """Return a comparison of these (requests, errors, p95)."""
    made = [Answered(requests=requests, errors=errors, p95=p95) for requests, errors, p95 in (old, new)]
    return StepComparison(old=made[0], new=made[1], last_request_at=BEGIN.timestamp() + last)


@pytest.mark.parametrize(
    ("comparison", "is_worse"),
    [
        (compared((100, 2, 0.15)), False),
        (compared((100, 3, 0.1)), True),
        (compared((100, 0, 0.151)), True),
        (compared((100, 0, 0.019), old=(100, 0, 0.001)), False),  # nobody notices
        (compared((100, 0, 0.022), old=(100, 0, 0.001)), True),
        (compared((100, 1, 9.0), old=(0, 0, None)), False),
        (compared((100, 2, 0.1), old=(0, 0, None)), True),
        (compared((50, 10, 0.1), old=(50, 10, 0.1)), False),
    ],
)
def test_worse_is_more_errors_or_slower(comparison: StepComparison, is_worse: bool) -> None:
    assert stepwise.worse(comparison, RULES) is is_worse


GOOD, BAD = compared((50, 0, 0.1)), compared((50, 25, 0.1))


@pytest.mark.parametrize(
    ("seconds", "complete", "comparison", "expected"),
    [
        (None, False, GOOD, Move.STAY),
        (None, True, GOOD, Move.BEGIN),
        (59, True, BAD, Move.STAY),
        (60, True, GOOD, Move.NEXT),
        (60, True, BAD, Move.RETURN),
        (60, False, BAD, Move.RETURN),
        (60, False, GOOD, Move.STAY),
        (60, True, None, Move.STAY),
        (9999, True, None, Move.STAY),
        (60, True, compared((49, 49, 9.0)), Move.STAY),
        (179, True, compared((0, 0, None)), Move.STAY),
        (180, True, compared((0, 0, None)), Move.NEXT),
        (180, False, compared((0, 0, None)), Move.STAY),
        (300, True, compared((49, 0, 0.1), last=121.0), Move.STAY),
        (300, True, compared((49, 0, 0.1), last=120.0), Move.NEXT),
    ],
)
def test_what_becomes_of_a_canary(
    seconds: int | None, complete: bool, comparison: StepComparison | None, expected: Move
) -> None:
    begun_at, now = (None, BEGIN) if seconds is None else (BEGIN, BEGIN + timedelta(seconds=seconds))
    assert stepwise.canary_move(begun_at, now, complete=complete, compared=comparison, rules=RULES) is expected


@pytest.mark.parametrize(
    ("seconds", "complete", "expected"),
    [
        (None, False, Move.STAY),
        (None, True, Move.BEGIN),
        (59, True, Move.STAY),
        (60, True, Move.NEXT),
        (60, False, Move.STAY),
    ],
)
def test_what_becomes_of_blue_green(seconds: int | None, complete: bool, expected: Move) -> None:
    begun_at, now = (None, BEGIN) if seconds is None else (BEGIN, BEGIN + timedelta(seconds=seconds))
    assert stepwise.blue_green_move(begun_at, now, complete=complete, rules=RULES) is expected
