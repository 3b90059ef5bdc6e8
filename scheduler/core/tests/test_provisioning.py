"""Which hosts are to be made: properties over random queues, and examples.

Each was seen to fail: without the budget of an added host, with `_needed` returning all, without `_count`, with a
budget that ends the loop instead of the request, and with the first type instead of the cheapest.
"""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.capacity.host_types import could_hold
from scheduler.core.provisioning import COMES_TEXT, Budget, Wanted, _bins, _take, hosts_wanted, starts_on
from scheduler.core.queue.remaining_limits import HolderLimits
from scheduler.core.types import EPOCH as NOW
from scheduler.core.types import ComingHost, HostType, LimitHolder, SessionRequest
from scheduler.core.waiting.forecast import StartEstimate

MINUTE = timedelta(minutes=1)
NO_LIMITS = HolderLimits({}, {})
SMALL = HostType("small", 8, 64, 1, 1000, cost_milli=1000)
BIG = HostType("big", 64, 512, 8, 1000, cost_milli=7000)
CPU_ONLY = HostType("cpu", 32, 128, cost_milli=500)
TYPES = (SMALL, BIG, CPU_ONLY)

requests = st.lists(
    st.builds(
        lambda cpu, memory, fgpu, members, spread: SessionRequest(
            "", 1, 1, cpu * members, memory * members, fgpu * members
        )._replace(members=members, mode="spread" if spread else "any"),
        st.integers(1, 40),
        st.integers(1, 140),
        st.sampled_from((0, 0, 100, 250, 500, 1000, 1500, 2000, 9000)),
        st.sampled_from((1, 1, 1, 2, 3)),
        st.booleans(),
    ),
    max_size=12,
).map(lambda found: [request._replace(id=f"s{number}") for number, request in enumerate(found)])
some_types = st.lists(st.sampled_from(TYPES), max_size=4)
budgets = st.builds(Budget, st.integers(0, 6), st.none() | st.integers(0, 20_000))


def wanted(
    queue: Sequence[SessionRequest], *, types: Sequence[HostType] = TYPES, budget: Budget | None = None
) -> Wanted:
    return hosts_wanted(queue, NO_LIMITS, (), types, budget or Budget(10))


def request(cpu: int = 1, fgpu: int = 0, members: int = 1) -> SessionRequest:
    return SessionRequest("one", 1, 1, cpu, 1, fgpu, members=members)


def gpu_requests(count: int, fgpu: int = 1000) -> list[SessionRequest]:
    return [request(fgpu=fgpu)._replace(id=f"s{number}") for number in range(count)]


@given(requests, some_types, budgets)
def test_no_budget_is_exceeded(queue: list[SessionRequest], coming: list[HostType], budget: Budget) -> None:
    found = hosts_wanted(queue, NO_LIMITS, coming, TYPES, budget).hosts
    assert len(found) <= budget.hosts
    assert budget.cost_milli is None or sum(kind.cost_milli for kind in found) <= budget.cost_milli


@given(requests, some_types, budgets)
def test_who_fits_a_type_is_covered_within_the_budget(
    queue: list[SessionRequest], coming: list[HostType], budget: Budget
) -> None:
    found = hosts_wanted(queue, NO_LIMITS, coming, TYPES, budget)
    left = budget.less(found.hosts)
    for one in queue:
        if one.id not in found.covered and one.members == 1:
            assert not any(could_hold(kind, one.shape) and left.allows(kind, 1) for kind in TYPES)


@given(requests, some_types, budgets)
def test_no_host_is_made_that_the_others_can_replace(
    queue: list[SessionRequest], coming: list[HostType], budget: Budget
) -> None:
    found = hosts_wanted(queue, NO_LIMITS, coming, TYPES, budget)
    covered = [one for one in queue if one.id in found.covered]
    assert all(_take(one, bins) for bins in [_bins([*coming, *found.hosts])] for one in covered)
    for position in range(len(found.hosts)):
        rest = [*found.hosts[:position], *found.hosts[position + 1 :]]
        bins = _bins([*coming, *rest])
        if all(_take(one, bins) for one in covered):  # and somebody who comes before would take their room
            assert hosts_wanted(queue, NO_LIMITS, [*coming, *rest], TYPES, budget.less(rest)).hosts


@given(requests, some_types, budgets)
def test_equal_queues_want_equal_hosts(queue: list[SessionRequest], coming: list[HostType], budget: Budget) -> None:
    first = hosts_wanted(queue, NO_LIMITS, coming, TYPES, budget)
    assert first == hosts_wanted(queue, NO_LIMITS, coming, TYPES[::-1], budget)


def test_no_session_makes_no_host() -> None:
    assert wanted([]) == Wanted((), frozenset())


def test_one_session_gets_the_cheapest_type() -> None:
    assert wanted([request()]).hosts == (CPU_ONLY,)
    assert wanted([request(fgpu=1000)]).hosts == (SMALL,)
    assert wanted([request(fgpu=1500)]).hosts == (BIG,)


def test_eight_gpus_come_cheaper_together() -> None:
    assert wanted(gpu_requests(8)).hosts == (BIG,)
    assert wanted(gpu_requests(6)).hosts == (SMALL,) * 6


def test_parts_of_a_gpu_share_a_host() -> None:
    assert wanted(gpu_requests(4, 250)).hosts == (SMALL,)
    whole = SMALL._replace(divides=False)
    assert wanted(gpu_requests(4, 250), types=(whole,)).hosts == ()


def test_who_could_never_fit_makes_no_host() -> None:
    assert wanted([request(fgpu=9000)]).hosts == ()
    assert wanted([request()._replace(traits=("storage:1",))]).hosts == ()
    assert wanted([request()._replace(traits=("gpu_memory:80",))]).hosts == ()


def test_traits_that_a_type_has_count() -> None:
    kind = SMALL._replace(traits=frozenset({"storage:1"}), gpu_memory_bytes=80, cpu=8000)
    asked = request()._replace(traits=("cores:8", "gpu_memory:80", "storage:1"))
    assert wanted([asked], types=(kind,)).hosts == (kind,)
    assert wanted([asked._replace(traits=("cores:9",))], types=(kind,)).hosts == ()


def test_who_fits_on_what_comes_makes_no_more() -> None:
    assert hosts_wanted(gpu_requests(2), NO_LIMITS, (SMALL, SMALL), TYPES, Budget(10)).hosts == ()
    assert hosts_wanted(gpu_requests(3), NO_LIMITS, (SMALL, SMALL), TYPES, Budget(10)).hosts == (SMALL,)


def test_who_is_at_their_limit_makes_no_host() -> None:
    one = LimitHolder(limits=PolicyLimits(fgpu=2000), used=Amounts())
    found = hosts_wanted(gpu_requests(5), HolderLimits({1: one}, {}), (), TYPES, Budget(10))
    assert found == Wanted((SMALL, SMALL), frozenset({"s0", "s1"}))


def test_a_spread_cluster_gets_a_host_for_each_member() -> None:
    cluster = request(cpu=3, fgpu=3000, members=3)._replace(mode="spread")
    assert wanted([cluster]).hosts == (SMALL,) * 3
    assert wanted([cluster], budget=Budget(2)) == Wanted((), frozenset())


def starts_of(
    queue: Sequence[SessionRequest], limits: HolderLimits = NO_LIMITS, **known: StartEstimate
) -> dict[str, int]:
    """Return when who waits starts on a small host that comes at 5 and another at 9, in minutes."""
    coming = [ComingHost(SMALL, NOW + minutes * MINUTE) for minutes in (9, 5)]
    found = starts_on(queue, limits.copy(), coming, known)
    assert all(start.eta_reason == COMES_TEXT for start in found.values())
    return {name: (start.at - NOW) // MINUTE for name, start in found.items()}


def test_who_has_room_on_what_comes_starts_then() -> None:
    assert starts_of(gpu_requests(3)) == {"s0": 5, "s1": 9}
    cluster = request(cpu=2, fgpu=2000, members=2)._replace(id="both", mode="spread")
    assert starts_of([cluster]) == {"both": 9}, "once all its hosts are there"
    assert starts_of([request(fgpu=2000)]) == {}


def test_who_starts_before_it_comes_leaves_its_room() -> None:
    soon, late = (StartEstimate(NOW + minutes * MINUTE, "") for minutes in (4, 60))
    assert starts_of(gpu_requests(3), s0=soon, s1=late) == {"s1": 5, "s2": 9}


def test_who_is_at_their_limit_starts_on_nothing_that_comes() -> None:
    one = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts())
    assert starts_of(gpu_requests(2), HolderLimits({1: one}, {})) == {"s0": 5}


def test_who_starts_before_it_comes_counts_against_limits() -> None:
    one = LimitHolder(limits=PolicyLimits(fgpu=1000), used=Amounts())
    assert starts_of(gpu_requests(2), HolderLimits({1: one}, {}), s0=StartEstimate(NOW + 4 * MINUTE, "")) == {}
