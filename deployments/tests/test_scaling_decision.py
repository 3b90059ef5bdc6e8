"""How many replicas are wanted by the load: examples, and what holds for random loads. Each was seen to fail.

Each test of a peer's fault names it: never triggered, more ended than asked, rules without priority, no cool-down,
no pause of a rule.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.scaling.decision import Bounds, Decision, Demand, decide, is_idle, replicas_for, with_use
from deployments.scaling.memory import Memory
from deployments.scaling.shares import ReplicaShares, SharePlan, plan

TICK = 2.0
START = 1_000_000.0
WORDS = "{total} requests outstanding, {target} a replica"


def demand(total: float | None, target: float = 10, key: str = "outstanding") -> Demand:
    return Demand(key=key, total=total, target=target, words=WORDS)


@dataclass
class Story:
    """A deployment under load whose replicas are ready at once unless `ready` says otherwise."""

    bounds: Bounds = field(default_factory=lambda: Bounds(minimum=1, maximum=64, down_after=60, cooldown=0))
    current: int = 1
    now: float = START
    ready: int | None = None
    memory: Memory = field(default_factory=Memory)
    decisions: list[Decision] = field(default_factory=list)

    def look(self, *demands: Demand) -> Decision:
        """Let the autoscaler look once, a tick later, with its memory stored in between."""
        self.now += TICK
        if len(self.decisions) % 20 == 0:
            self.memory = Memory.of_json(self.memory.as_json())
        ready = self.current if self.ready is None else self.ready
        decision, self.memory = decide(
            self.bounds, demands, self.memory, now=self.now, current=self.current, ready=ready
        )
        self.current = decision.replicas
        self.decisions.append(decision)
        return decision

    def under(self, loads: Iterable[float | None]) -> list[int]:
        """Return how many were wanted after each look."""
        return [self.look(demand(load)).replicas for load in loads]


def for_seconds(seconds: float, load: float | None) -> list[float | None]:
    return [load] * int(seconds / TICK)


def test_load_above_the_target_adds_replicas_at_once() -> None:
    story = Story()
    assert story.look(demand(20)) == Decision(replicas=2, why="20 requests outstanding, 10 a replica")
    assert story.under([35, 40]) == [3, 4]


def test_a_step_at_most_doubles_what_runs() -> None:
    assert Story().under([1000] * 8) == [2, 4, 8, 16, 32, 64, 64, 64]
    assert Story().look(demand(1e308, target=0.001)).replicas == 2


def test_a_burst_after_quiet_counts_by_its_last_seconds() -> None:
    story = Story()
    story.under(for_seconds(120, 0))
    assert story.under([100, 100, 100, 100]) == [2, 4, 8, 10]


def test_nothing_is_scaled_down_during_a_panic() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=64, down_after=2, cooldown=0))
    story.under([*for_seconds(20, 0), 100, 100, 100, 100, 100])
    assert story.current == 10
    assert story.under(for_seconds(50, 0)) == [10] * 25
    assert story.under(for_seconds(60, 0))[-1] == 1


def test_down_only_once_a_whole_window_needs_less() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=64, down_after=300, cooldown=0))
    story.under(for_seconds(90, 40))
    assert story.current == 4
    assert story.under(for_seconds(280, 10)) == [4] * 140
    story.under(for_seconds(120, 10))
    assert story.current == 1
    assert any("no more were needed for 300 s" in decision.why for decision in story.decisions)


def test_a_peak_within_the_window_begins_it_anew() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=64, down_after=300, cooldown=0))
    story.under(for_seconds(90, 40))
    story.under(for_seconds(200, 10))
    story.under(for_seconds(70, 40))
    assert story.under(for_seconds(290, 10)) == [4] * 145


def test_scaling_down_ends_no_more_than_is_spare() -> None:
    """As a peer's did, below what was needed (backend.ai #3985)."""
    story = Story()
    story.under(for_seconds(120, 80))
    wanted = story.under(for_seconds(300, 45))
    assert wanted == sorted(wanted, reverse=True)
    assert (wanted[0], wanted[-1]) == (8, 5)


def test_a_rule_that_can_be_met_triggers() -> None:
    """As a peer's never did (#9678, #8000): for each metric, whatever its size."""
    for target in (0.001, 0.5, 1, 70, 100_000):
        assert Story().look(demand(target * 2, target)).replicas == 2


def test_the_rule_that_needs_most_decides() -> None:
    """Where a peer's rules had no priority (#3496)."""
    story = Story()
    decision = story.look(demand(15), demand(3, 1, "query"))
    assert decision.replicas == 2
    assert decision.why == "3 requests outstanding, 1 a replica"
    assert story.look(demand(15), demand(3, 1, "query")).replicas == 3


def test_a_rule_without_data_keeps_what_runs() -> None:
    story = Story()
    story.under(for_seconds(90, 40))
    for _ in range(200):
        decision = story.look(demand(0), demand(None, key="query"))
    assert story.current == 4
    assert "unknown" in decision.why
    assert story.look(demand(60), demand(None, key="query")).replicas >= 4


def test_data_that_was_missing_begins_the_window_anew() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=9, down_after=100, cooldown=0))
    story.under(for_seconds(90, 40))
    story.under(for_seconds(90, 0))
    story.look(demand(None))
    assert story.under(for_seconds(90, 0)) == [4] * 45


def test_without_an_active_rule_nothing_changes() -> None:
    """A peer's rules could not be paused (#3496)."""
    story = Story(current=3)
    for _ in range(200):
        assert story.look() == Decision(replicas=3, why="no rule is active")


def test_the_cooldown_holds_for_the_whole_deployment() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=64, down_after=2, cooldown=20))
    assert story.under([1000] * 21) == [2] * 10 + [4] * 10 + [8]
    assert "just scaled" in story.decisions[3].why


def test_bounds_hold_even_during_the_cooldown() -> None:
    story = Story(bounds=Bounds(minimum=2, maximum=5, down_after=60, cooldown=1000))
    assert story.look(demand(0)) == Decision(replicas=2, why="at least 2 are to run")
    story.bounds = Bounds(minimum=1, maximum=1, down_after=60, cooldown=1000)
    assert story.look(demand(50)) == Decision(replicas=1, why="at most 1 are to run")


def test_a_change_by_hand_is_left_for_a_window() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=9, down_after=100, cooldown=0))
    story.under(for_seconds(300, 0))
    story.current = 5
    assert story.under(for_seconds(96, 0)) == [5] * 48
    assert story.under(for_seconds(20, 0))[-1] == 1


def test_a_gap_in_what_is_seen_scales_nothing_down() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=9, down_after=60, cooldown=0), current=4)
    story.under(for_seconds(50, 0))
    story.now += 3600
    assert story.under(for_seconds(58, 0)) == [4] * 29


@pytest.mark.parametrize("text", [None, "", "[]", "{", "3", '{"samples": 3}', b"\xff", '{"samples": [], "needs": []}'])
def test_a_memory_that_cannot_be_read_is_forgotten(text: str | bytes | None) -> None:
    assert Memory.of_json(text) == Memory()


def test_memories_stay_small() -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=64, down_after=3600, cooldown=0))
    for second in range(2200):
        story.look(demand(second % 70), demand(second % 9, key="query"))
    assert len(story.memory.as_json()) < 6000


def test_float_noise_needs_no_further_replica() -> None:
    assert replicas_for(0.1 + 0.2, 0.1) == 3
    assert replicas_for(0.0, 0.1) == 0
    assert replicas_for(0.001, 0.1) == 1


LOADS = st.lists(
    st.tuples(st.sampled_from([2, 6, 20, 60, 120]), st.one_of(st.none(), st.floats(0, 700))), min_size=1, max_size=8
)
BOUNDS = st.builds(
    lambda low, more, down, cool: Bounds(minimum=low, maximum=low + more, down_after=down, cooldown=cool),
    st.integers(1, 6),
    st.integers(0, 58),
    st.sampled_from([10.0, 60.0, 300.0]),
    st.sampled_from([0.0, 15.0]),
)


@settings(max_examples=60, deadline=None)
@given(BOUNDS, LOADS, st.integers(0, 64), st.floats(0.5, 100))
def test_random_loads_hold_the_bounds(
    bounds: Bounds, loads: Sequence[tuple[int, float | None]], ready: int, target: float
) -> None:
    story = Story(bounds=bounds, current=bounds.minimum, ready=ready)
    changed_at = 0.0
    for seconds, load in loads:
        for each in for_seconds(seconds, load):
            before = story.current
            after = story.look(demand(each, target)).replicas
            assert bounds.minimum <= after <= bounds.maximum, "beyond the bounds"
            assert after <= 2 * before, "more than doubled"
            is_cooling = story.now - changed_at < bounds.cooldown
            assert not is_cooling or after == before, "changed during the cool-down"
            assert each is not None or after >= before, "scaled down for the unknown"
            means = [story.memory.mean("outstanding", story.now, window) for window in (6, 60)]
            least = min(replicas_for(mean, target) for mean in means)
            enough = min(least, bounds.maximum, 2 * before)
            assert is_cooling or each is None or after >= enough, "fewer than any window needs"
            if after != before:
                changed_at = story.now


@settings(max_examples=40, deadline=None)
@given(BOUNDS, LOADS, st.floats(0, 700), st.floats(0.5, 100))
def test_constant_load_settles_and_then_nothing_changes(
    bounds: Bounds, loads: Sequence[tuple[int, float | None]], load: float, target: float
) -> None:
    story = Story(bounds=bounds, current=bounds.minimum)
    for seconds, each in loads:
        for one in for_seconds(seconds, each):
            story.look(demand(one, target))
    for _ in range(int((60 + 60 + bounds.down_after + 7 * (bounds.cooldown + TICK) + 30) / TICK)):
        story.look(demand(load, target))
    needed = min(bounds.maximum, max(bounds.minimum, replicas_for(load, target)))
    assert story.current == needed
    settled = [story.look(demand(load, target)).replicas for _ in range(200)]
    assert set(settled) == {needed}, "it flaps"


@settings(max_examples=15, deadline=None)
@given(st.floats(1, 600), st.floats(0, 0.4), st.integers(4, 40))
def test_a_load_that_swings_within_the_window_never_flaps(load: float, swing: float, period: int) -> None:
    story = Story(bounds=Bounds(minimum=1, maximum=64, down_after=300, cooldown=15))
    wanted = []
    for tick in range(900):
        factor = 1 + swing if tick % period < period / 2 else 1 - swing
        wanted.append(story.look(demand(load * factor)).replicas)
    assert len(set(wanted[500:])) == 1


def test_idle_only_after_the_whole_time_without_use() -> None:
    memory = Memory().at(START, 1)
    for second in range(0, 100, 2):
        memory = with_use(memory.at(START + second, 1), now=START + second, in_use=second == 10, ready=1)
        assert is_idle(memory, now=START + second, idle_seconds=60) == (second >= 70)


@pytest.mark.parametrize(("in_use", "ready"), [(None, 1), (True, 1), (False, 0)])
def test_what_is_unknown_or_not_ready_is_never_idle(in_use: bool | None, ready: int) -> None:
    memory = Memory().at(START, 1)
    for second in range(0, 1000, 2):
        memory = with_use(memory.at(START + second, 1), now=START + second, in_use=in_use, ready=ready)
        assert not is_idle(memory, now=START + second, idle_seconds=60)


def test_what_just_woke_is_not_idle() -> None:
    memory = replace(Memory(), seen_at=START, busy_at=START - 1000, wanted=0)
    assert memory.at(START + 4, 1).busy_at == START + 4


SHARES = st.builds(
    lambda base, growth, held: ReplicaShares(
        base=base * 10,
        held=tuple(base * 10 + more % (base * growth // 10 + 1) * 10 for more in held),
        limit=base * (growth + 10),
    ),
    st.integers(1, 50),
    st.integers(0, 50),  # tenths of the base
    st.lists(st.integers(0, 250), min_size=1, max_size=8),
)


def planned_total(shares: ReplicaShares, replicas: int, wanted: SharePlan) -> int:
    """Return what all hold once the plan is carried out: those yet to serve count with what they begin with."""
    after = replace(shares, held=tuple(wanted.of(held) for held in shares.held))
    return after.total(max(wanted.replicas, replicas) if wanted.grows else wanted.replicas)


@given(SHARES, st.integers(0, 3), st.integers(1, 8), st.integers(1, 2000))
def test_shares_grow_before_replicas_and_shrink_after(shares: ReplicaShares, yet: int, least: int, units: int) -> None:
    replicas = max(len(shares.held) + yet, least)
    wanted = plan(units, replicas=replicas, least=least, shares=shares)
    before, after, needed = shares.total(replicas), planned_total(shares, replicas, wanted), units * shares.base
    assert wanted.replicas >= least
    assert after >= min(before, needed), "the total falls below what is needed"
    if wanted.share:
        assert wanted.replicas == replicas, "shares change before the spare replicas have gone"
        assert shares.base <= wanted.share
        assert not wanted.grows or wanted.share <= shares.most
    if wanted.replicas > replicas:
        assert min(shares.held) >= shares.most, "not at their most yet"
        assert after - shares.base < needed or (wanted.replicas - 1) * shares.most < needed, "one too many"


@given(SHARES, st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_the_total_never_falls_while_the_need_does_not(shares: ReplicaShares, needs: Sequence[int]) -> None:
    """Units are counted, decided and planned again and again, as replicas come and grow."""
    replicas = len(shares.held)
    for need in sorted(needs):
        for _ in range(20):
            before = shares.total(replicas)
            units = min(max(need, shares.units(replicas)), 2 * shares.units(replicas))
            wanted = plan(units, replicas=replicas, least=1, shares=shares)
            replicas = wanted.replicas
            held = [wanted.of(each) for each in shares.held]
            shares = replace(shares, held=(*held, *[shares.base] * (replicas - len(held)))[:replicas])
            assert shares.total(replicas) >= min(before, units * shares.base)
            assert shares.units(replicas) >= min(need, before // shares.base), "less though no less is needed"
        assert shares.units(replicas) >= need, "the need is never met"


def test_one_replica_grows_to_its_most_before_another() -> None:
    for units, held, wanted in ((2, 200, (1, 400)), (4, 400, (1, 800)), (5, 800, (2, 0)), (1, 800, (1, 200))):
        shares = ReplicaShares(base=200, held=(held,), limit=800)
        planned = plan(units, replicas=1, least=1, shares=shares)
        assert (planned.replicas, planned.share) == wanted
    shares = ReplicaShares(base=200, held=(800, 800, 800), limit=800)
    assert plan(3, replicas=3, least=1, shares=shares) == SharePlan(replicas=1)


def test_only_the_smaller_replica_grows_at_peak() -> None:
    shares = ReplicaShares(base=200, held=(800, 200), limit=800)
    assert shares.units(2) == 5
    wanted = plan(7, replicas=2, least=1, shares=shares)
    assert [wanted.of(held) for held in shares.held] == [800, 600]


def test_growth_is_by_whole_units_alone() -> None:
    shares = ReplicaShares(base=500, held=(900,), limit=900)
    assert plan(1, replicas=1, least=1, shares=shares) == SharePlan(replicas=1, share=500)
    assert plan(2, replicas=1, least=1, shares=shares) == SharePlan(replicas=2)
    for limit, wanted in ((900, SharePlan(replicas=2)), (1200, SharePlan(replicas=1, share=1000, grows=True))):
        assert plan(2, replicas=1, least=1, shares=ReplicaShares(base=500, held=(500,), limit=limit)) == wanted
