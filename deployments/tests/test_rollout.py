"""The steps of rollouts: what holds at each, for all small cases and for random stories. Each was seen to fail.

Broken were the floor (`wanted` for `wanted - unavailable`, and 0), the order of `_least_useful_first`, `min` with the
surge in `plan`, and `spare` without its bounds.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.replicas import rollout
from deployments.replicas.rollout import PastReplica, ReplicaFact, RolloutPlan, plan

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def facts(kinds: Sequence[tuple[bool, bool]]) -> list[ReplicaFact]:
    """Return replicas of these (is_current, is_ready), the oldest first."""
    return [
        ReplicaFact(id=f"r{number}", is_current=current, is_ready=ready, created_at=BEGIN + timedelta(seconds=number))
        for number, (current, ready) in enumerate(kinds)
    ]


def after(replicas: Sequence[ReplicaFact], step: RolloutPlan) -> list[ReplicaFact]:
    return [replica for replica in replicas if replica.id not in step.drains]


def check_step(
    wanted: int, surge: int, unavailable: int, replicas: Sequence[ReplicaFact], *, may_launch: bool = True
) -> RolloutPlan:
    """Return the step, after what must hold of each."""
    step = plan(wanted=wanted, surge=surge, unavailable=unavailable, replicas=replicas, may_launch=may_launch)
    left = after(replicas, step)
    ready_before, ready_after = sum(each.is_ready for each in replicas), sum(each.is_ready for each in left)
    assert ready_after >= min(ready_before, wanted - unavailable), "below what must stay available"
    assert ready_after or not ready_before or not wanted or not surge, "the last one that serves was drained"
    assert not step.launches or len(left) + step.launches <= wanted + surge, "beyond the surge"
    assert step.launches == 0 or may_launch
    assert len(set(step.drains)) == len(step.drains)
    current = [each for each in replicas if each.is_current]
    drained_current = [each for each in current if each.id in step.drains]
    assert len(drained_current) == max(0, len(current) - wanted), "more or fewer ended than asked"
    if any(each.is_ready for each in drained_current):
        assert all(each.is_ready for each in left if each.is_current), "one that serves went before one that does not"
    return step


def test_every_small_case_holds_the_bounds() -> None:
    kinds = [(current, ready) for current in (False, True) for ready in (False, True)]
    cases = 0
    for wanted, surge, unavailable in product(range(5), range(3), range(3)):
        if surge + unavailable == 0:
            continue
        for size in range(7):
            for chosen in combinations_with_replacement(kinds, size):
                check_step(wanted, surge, unavailable, facts(chosen))
                cases += 1
    assert cases > 5000


@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (0, 1), (2, 1), (3, 0), (0, 64), (1, 2)])
def test_every_rollout_ends_with_what_is_wanted(surge: int, unavailable: int) -> None:
    kinds = [(current, ready) for current in (False, True) for ready in (False, True)]
    for wanted in range(5):
        for size in range(6):
            for chosen in combinations_with_replacement(kinds, size):
                _converge(wanted, surge, unavailable, facts(chosen))


def _converge(wanted: int, surge: int, unavailable: int, replicas: list[ReplicaFact]) -> None:
    for number in range(60):
        step = check_step(wanted, surge, unavailable, replicas)
        if step == RolloutPlan() and all(each.is_ready for each in replicas):
            break
        replicas = [replace(each, is_ready=True) for each in after(replicas, step)]
        replicas += [
            ReplicaFact(
                id=f"n{number}.{launched}",
                is_current=True,
                is_ready=False,
                created_at=BEGIN + timedelta(hours=1, seconds=number),
            )
            for launched in range(step.launches)
        ]
    assert [each.is_current for each in replicas] == [True] * wanted


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_stories_hold_the_bounds_and_settle(data: st.DataObject) -> None:
    wanted, surge, unavailable = (
        data.draw(st.integers(0, 8)),
        data.draw(st.integers(0, 3)),
        data.draw(st.integers(0, 3)),
    )
    if surge + unavailable == 0:
        surge = 1
    replicas: list[ReplicaFact] = []
    made = 0
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["step", "step", "ready", "sick", "die", "scale", "new", "pause"])):
            case "scale":
                wanted = data.draw(st.integers(0, 8))
            case "new":
                replicas = [replace(each, is_current=False) for each in replicas]
            case "die" if replicas:
                replicas.pop(data.draw(st.integers(0, len(replicas) - 1)))
            case "ready" | "sick" as change if replicas:
                chosen = data.draw(st.integers(0, len(replicas) - 1))
                replicas[chosen] = replace(replicas[chosen], is_ready=change == "ready")
            case "pause":
                replicas = after(replicas, check_step(wanted, surge, unavailable, replicas, may_launch=False))
            case _:
                step = check_step(wanted, surge, unavailable, replicas)
                replicas = after(replicas, step)
                for _launch in range(step.launches):
                    made += 1
                    created_at = BEGIN + timedelta(seconds=made)
                    fact = ReplicaFact(id=f"s{made}", is_current=True, is_ready=False, created_at=created_at)
                    replicas.append(fact)
    _converge(wanted, surge, unavailable, replicas)


def test_scaling_down_ends_the_unready_then_the_youngest() -> None:
    replicas = facts([(True, True), (True, False), (True, True), (True, True)])
    assert plan(wanted=2, surge=1, unavailable=0, replicas=replicas).drains == ("r1", "r3")


def test_a_revision_that_never_gets_ready_leaves_the_old_one() -> None:
    replicas = facts([(False, True), (False, True), (True, False)])
    assert plan(wanted=2, surge=1, unavailable=0, replicas=replicas) == RolloutPlan()
    assert plan(wanted=1, surge=1, unavailable=1, replicas=replicas[1:]) == RolloutPlan()


def past(*kinds: str) -> list[PastReplica]:
    """Return replicas that ended a minute after one another: "f" failed, "e" were ended, "p" failed once proven."""
    return [
        PastReplica(
            has_failed=kind != "e",
            created_at=BEGIN + timedelta(minutes=number, seconds=-30),
            healthy_at=BEGIN - timedelta(hours=1) if kind == "p" else None,
            ended_at=BEGIN + timedelta(minutes=number),
        )
        for number, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("kinds", "seconds"),
    [("", None), ("e", None), ("f", 10), ("ff", 20), ("fff", 40), ("ffffff", 300), ("f" * 40, 300), ("fffp", None)],
)
def test_pauses_double_up_to_five_minutes(kinds: str, seconds: int | None) -> None:
    until = rollout.launch_after(past(*kinds))
    last = BEGIN + timedelta(minutes=len(kinds) - 1)
    assert until == (None if seconds is None else last + timedelta(seconds=seconds))


def test_what_was_ended_between_failures_pauses_nothing_longer() -> None:
    assert rollout.failures_in_row(past("f", "e", "f")) == 2
    assert rollout.failures_in_row(past("f", "f", "p", "f")) == 1


def test_replicas_that_fail_together_are_one_failure() -> None:
    two, four = past("f", "f"), [replace(each, created_at=BEGIN - timedelta(hours=1)) for each in past("f", "f")]
    assert [rollout.failures_in_row(each) for each in (two, four, [*four, *past(*"eeff")[2:]])] == [2, 1, 3]
    assert not rollout.must_return(four * 4, was_any_healthy=False)


@pytest.mark.parametrize(
    ("kinds", "healthy", "returns"), [("ff", False, False), ("fff", False, True), ("fff", True, False)]
)
def test_a_revision_is_given_up_after_three_failures(kinds: str, healthy: bool, returns: bool) -> None:
    assert rollout.must_return(past(*kinds), was_any_healthy=healthy) is returns
