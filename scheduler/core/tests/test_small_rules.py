"""Rules of the core in their smallest cases: those which random worlds seldom decide by."""

from dataclasses import replace
from datetime import timedelta

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from scheduler.core.capacity.fragmentation import Fragmentation, usual_shapes, weighed_by_scarcity
from scheduler.core.capacity.gpu_closeness import GpuCloseness
from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import find_preemption
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD, plan, serve
from scheduler.core.queue.fair_share import STARVING, FairShares
from scheduler.core.tests.worlds import make_host, make_request, make_snapshot
from scheduler.core.types import (
    EPOCH,
    GPU_MODEL_TRAIT,
    Association,
    LimitHolder,
    QueueOrder,
    Rules,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
    in_groups,
)

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NOW = EPOCH + 1000 * HOUR


def session(name: str, host: int, *shares: tuple[int, int], hours_ago: int = 1, owner: int = 1) -> RunningSession:
    return RunningSession(name, owner, host, 1, 1, shares, NOW - hours_ago * HOUR)


def placed(snapshot: Snapshot) -> dict[str, int]:
    return {it.session_id: it.host_id for it in plan(snapshot, NOW).placements}


def test_backfill_counts_the_time_of_start_and_stop() -> None:
    running = session("r", 1, (100, 1000))._replace(ends_at=NOW + HOUR)
    head = make_request("head", 2000)
    for minutes, starts in ((54, True), (55, False)):
        behind = make_request("behind", 1000)._replace(duration=minutes * MINUTE)
        world = make_snapshot([make_host(1, [0, 1000])], [head, behind])
        world = replace(world, running=(running,), rules={1: Rules(overhead=6 * MINUTE)})
        assert (placed(world) == {"behind": 1}) == starts


def whole_host(world: Snapshot, head: SessionRequest) -> int | None:
    """Return the host that is reserved as a whole for a request that has waited for three hours."""
    world = replace(world, queue=(head._replace(queued_at=NOW - 3 * HOUR),), rules={1: Rules(reservation_delay=HOUR)})
    cluster = ClusterState(world)
    serve(cluster, world.queue, world.rules, NOW)
    reservation = cluster.groups[1].reservation
    return None if reservation is None else reservation.hosts[0].host_id


def test_the_host_that_lacks_least_takes_no_new_starts() -> None:
    running = (session("old", 1, (100, 1000), (101, 1000), hours_ago=9), session("new", 2, (200, 1000), hours_ago=5))
    world = replace(make_snapshot([make_host(1, [0, 0]), make_host(2, [0, 1000])], []), running=running)
    assert whole_host(world, make_request("head", 2000)) == 2
    running = (running[0], running[1]._replace(started_at=NOW - HOUR))  # since the reservation fell due
    assert whole_host(replace(world, running=running), make_request("head", 2000)) == 1


def test_a_whole_host_is_not_one_where_a_session_overstays() -> None:
    stuck = session("stuck", 1, (100, 1000), hours_ago=9)._replace(ends_at=NOW - HOUR)
    running = (stuck, session("r", 2, (200, 1000)))
    world = replace(make_snapshot([make_host(1, [0, 1000]), make_host(2, [0, 1000])], []), running=running)
    assert whole_host(world, make_request("head", 2000)) == 2
    endless = (stuck._replace(ends_at=None), running[1])
    assert whole_host(replace(world, running=endless), make_request("head", 2000)) == 1


def test_a_head_is_passed_over_once_a_session_overstays() -> None:
    running = (session("r", 1, (100, 1000))._replace(ends_at=NOW + HOUR), session("s", 2, (200, 1000)))
    queue = [make_request("a-large", 2000), make_request("b-small", 1000)]
    state = IncrementalState(replace(make_snapshot([make_host(1, [0, 0]), make_host(2, [0])], queue), running=running))
    heads = []
    for hours in (0, 2):
        state.serve(NOW + hours * HOUR)
        head = state.cluster.groups[1].head
        heads.append(head and head.id)
    assert heads == ["a-large", "b-small"]


def test_a_whole_host_has_the_traits() -> None:
    running = (session("a", 1, (100, 1000)), session("b", 2, (200, 1000)))
    hosts = [make_host(1, [0]), make_host(2, [0], roots=(7,))]
    world = replace(make_snapshot(hosts, []), running=running)
    assert whole_host(world, make_request("head", 1000, roots=(7,))) == 2
    assert whole_host(world, make_request("head", 1000, roots=(8,))) is None


def test_close_gpus_never_take_an_avoided_host() -> None:
    near = ((0, 9, 0), (9, 0, 0), (0, 0, 0))
    one, two = (replace(make_host(number, [1000] * 3), closeness=near) for number in (1, 2))
    one = replace(one, gpus=(one.gpus[0]._replace(free_milli=0), *one.gpus[1:]))  # its near pair is broken
    two = replace(two, gpus=(*two.gpus[:2], two.gpus[2]._replace(free_milli=0)))
    assert placed(make_snapshot([one, two], [make_request("a", 2000)])) == {"a": 2}
    assert placed(make_snapshot([one, two], [make_request("a", 2000, avoided=(2,))])) == {"a": 1}


def test_use_counts_by_its_charge_and_ends_with_the_session() -> None:
    host = make_host(1, [1000])
    whole, half = session("whole", 1, (100, 1000)), session("half", 1, (100, 1000))._replace(charge_percent=50)
    holder, uses = Association(0, 1), []
    for one in (whole, half):
        shares = FairShares([host], Rules(), [one], {}, {})
        uses.append((shares.base(holder, NOW)[2], shares.use(holder, NOW)))
        shares.remove(one)
        assert shares.use(holder, NOW) == 0
    assert uses[0][0] == 2 * uses[1][0] > 0
    assert abs(uses[0][1] - 2 * uses[1][1]) <= 1


def test_members_of_a_project_are_readmitted_by_each_others_ends() -> None:
    running = session("r", 1, (100, 500), owner=2)._replace(project_id=7)
    world = make_snapshot([make_host(1, [500])], [make_request("a", 500)._replace(project_id=7)])
    holder = LimitHolder(limits=PolicyLimits(sessions=1), used=Amounts(sessions=1))
    state = IncrementalState(replace(world, running=(running,), projects={7: holder}))
    assert state.serve(NOW) == []
    state.update([running], [])
    assert [it.session_id for it in state.serve(NOW)] == ["a"]


def preempted(world: Snapshot, request: SessionRequest) -> tuple[str, ...]:
    cluster = ClusterState(world)
    serve(cluster, world.queue, world.rules, NOW)
    found = find_preemption(cluster.groups[1], request, Candidates(cluster.running_sessions()), NOW)
    return () if found is None else found.victim_ids


def test_the_head_alone_preempts_on_its_reserved_host() -> None:
    running = session("r", 1, (100, 1000))._replace(ends_at=NOW + HOUR, is_preemptible=True)
    head, other = make_request("head", 1000), make_request("other", 1000)
    world = replace(make_snapshot([make_host(1, [0])], [head, other]), running=(running,))
    assert preempted(world, head) == ("r",)
    assert preempted(world, other) == ()


def test_the_youngest_of_equal_sessions_ends() -> None:
    running = [session(f"r{it}", 1, (100, 250), hours_ago=it)._replace(is_preemptible=True) for it in (3, 1, 2)]
    world = replace(make_snapshot([make_host(1, [250])], [make_request("a", 500)]), running=tuple(running))
    assert preempted(world, make_request("a", 500)) == ("r1",)


def test_fair_order_serves_who_has_used_least() -> None:
    rules = {1: Rules(queue_order=QueueOrder.FAIR)}
    running = session("r", 1, (100, 900), hours_ago=5, owner=1)
    queue = [make_request("a", 100, owner=1), make_request("b", 100, owner=2)]
    world = replace(make_snapshot([make_host(1, [100])], queue), running=(running,), rules=rules)
    assert placed(world) == {"b": 1}


def test_a_claim_is_covered_once_all_its_amounts_are_free() -> None:
    claim = RunningSession("claim", 1, 1, 4, 4, ((100, 500),), NOW)
    for other, is_covered in (
        ((4, 4, 500), True),
        ((5, 4, 500), False),
        ((4, 5, 500), False),
        ((4, 4, 501), False),
    ):
        held = RunningSession("other", 2, 1, other[0], other[1], ((100, other[2]),), NOW)
        cluster = ClusterState(make_snapshot([make_host(1, [1000], cpu=8, memory=8)], []))
        cluster.add_running(held)
        cluster.add_running(claim)
        assert cluster.covers(claim) == is_covered
        assert cluster.covers(claim, [held])
    cluster = ClusterState(make_snapshot([make_host(1, [1000, 1000], cpu=8, memory=8)], []))
    cluster.add_running(RunningSession("other", 2, 1, 1, 1, ((101, 1001),), NOW))
    cluster.add_running(claim)
    assert cluster.covers(claim)


def test_of_equal_hosts_it_is_one_that_has_the_image() -> None:
    world = make_snapshot([make_host(1, [1000]), make_host(2, [1000])], [make_request("a", 500, image=3)])
    assert placed(world) == {"a": 1}
    assert placed(replace(world, image_hosts={3: frozenset({2})})) == {"a": 2}


def test_images_decide_among_equal_hosts_alone() -> None:
    first = make_host(1, [500, 500])
    for second in (
        make_host(2, [500, 500], cpu=8),
        make_host(2, [500, 500], memory=32 * GIB),
        make_host(2, [1000, 0]),
        make_host(2, [500, 500], roots=(7,)),
    ):
        world = make_snapshot([first, second], [make_request("a", 250, image=3)])
        assert placed(replace(world, image_hosts={3: frozenset({2})})) == {"a": 1}


def test_what_others_claim_on_another_host_covers_nothing() -> None:
    cluster = ClusterState(make_snapshot([make_host(1, [], cpu=4), make_host(2, [], cpu=4)], []))
    here, there = (RunningSession(name, 1, host, 5, 1, (), NOW) for name, host in (("here", 1), ("there", 2)))
    cluster.add_running(here)
    cluster.add_running(there)
    assert not cluster.covers(here, [there])


def test_a_claim_that_starts_has_its_charge() -> None:
    cluster = ClusterState(make_snapshot([make_host(1, [1000])], []))
    cluster.start_at(make_request("a")._replace(charge_percent=50), [(1, 1, ())], NOW)
    assert cluster.groups[1].running["a"].charge_percent == 50


def test_images_are_no_reason_to_take_a_reserved_host() -> None:
    head = make_request("head", 2000)._replace(queued_at=NOW - 3 * HOUR)
    behind = make_request("b", 1000, image=3)._replace(queued_at=NOW)
    world = make_snapshot([make_host(1, [0, 1000]), make_host(2, [0, 1000])], [head, behind])
    world = replace(world, rules={1: Rules(reservation_delay=HOUR)}, image_hosts={3: frozenset({1})})
    assert whole_host(world, head) == 1
    assert placed(world) == {"b": 2}


def test_images_are_no_reason_to_divide_what_is_whole() -> None:
    hosts = [make_host(1, [1000]), make_host(2, [1000], divides=False)]
    world = make_snapshot(hosts, [make_request("a", 500, image=3)])
    assert placed(replace(world, image_hosts={3: frozenset({2})})) == {"a": 1}


def test_images_are_no_reason_to_take_an_avoided_host() -> None:
    world = make_snapshot([make_host(1, [1000]), make_host(2, [1000])], [make_request("a", 500, image=3, avoided=(2,))])
    assert placed(replace(world, image_hosts={3: frozenset({2})})) == {"a": 1}


def test_close_gpus_go_before_the_image() -> None:
    pairs = ((0, 1, 0), (1, 0, 0), (0, 0, 0))
    far = replace(make_host(1, [1000, 0, 1000]), closeness=pairs)
    near = replace(make_host(2, [1000, 1000, 0]), closeness=pairs)
    world = make_snapshot([far, near], [make_request("a", 2000, image=3)])
    assert placed(replace(world, image_hosts={3: frozenset({1})})) == {"a": 2}


def test_of_hosts_equally_close_it_is_the_first() -> None:
    pairs = ((0, 9, 0), (9, 0, 0), (0, 0, 0))
    hosts = [replace(make_host(number, [1000, 0, 1000]), closeness=pairs) for number in (1, 2)]
    assert placed(make_snapshot(hosts, [make_request("a", 2000)])) == {"a": 1}


def test_closeness_does_not_count_for_one_device() -> None:
    near = replace(make_host(1, [1000] * 3), closeness=((0, 9, 0), (9, 0, 0), (0, 0, 0)))
    world = make_snapshot([near, make_host(2, [1000] * 3)], [make_request("a", 1000, image=3)])
    assert placed(replace(world, image_hosts={3: frozenset({2})})) == {"a": 2}


def test_a_shape_is_as_usual_as_all_its_counts() -> None:
    one, other = Shape(1, 1, 500), Shape(2, 2, 1000)
    assert usual_shapes([(one, 2), (other, 1), (one, 1)]) == [(one, 3), (other, 1)]


def test_of_too_many_sets_a_close_one_is_found() -> None:
    pairs = tuple(tuple(9 * (one % 2 == other % 2) for other in range(16)) for one in range(16))
    assert GpuCloseness(pairs).choose(range(16), 8) == tuple(range(0, 16, 2))


def test_who_holds_nothing_any_more_is_starving() -> None:
    one = session("one", 1, (100, 1000), hours_ago=99)
    shares = FairShares([make_host(1, [1000])], Rules(starvation_limit=HOUR), [one], {}, {})
    request, holder = make_request("a")._replace(queued_at=NOW - 2 * HOUR), Association(0, 1)
    assured = shares.assured(shares.due([holder]))
    assert shares.key(holder, request, NOW, assured)[0] != STARVING
    shares.remove(one)
    assert shares.key(holder, request, NOW, assured)[0] == STARVING


def test_a_project_uses_nothing_once_its_sessions_are_gone() -> None:
    one = session("one", 1, (100, 1000))._replace(project_id=7)
    shares = FairShares([make_host(1, [1000])], Rules(), [one], {}, {})
    assert shares.base(Association(7, 0), NOW)[2] > 0
    shares.remove(one)
    assert shares.base(Association(7, 0), NOW)[2] == 0


def test_what_starts_in_one_group_reserves_nothing_in_another() -> None:
    running = (
        session("r1", 1, (100, 1000))._replace(ends_at=NOW + 2 * HOUR),
        session("r2", 2, (200, 1000), (201, 1000))._replace(ends_at=NOW + HOUR),
    )
    first = in_groups(make_request("a-both", 2000, group=2), {1: ()})
    hosts = [make_host(1, [0, 1000]), make_host(2, [0, 0], group=2)]
    world = replace(make_snapshot(hosts, [first, make_request("b", 1000)]), running=running)
    assert {it.session_id: it.eta for it in plan(world, NOW).waiting} == {"a-both": NOW + HOUR, "b": NOW + HOUR}


def test_a_short_session_starts_though_a_longer_one_cannot() -> None:
    running = session("r", 1, (100, 1000))._replace(ends_at=NOW + HOUR)
    queue = [make_request("a-head", 2000), make_request("b-unbounded", 1000)]
    queue.append(make_request("c-short", 1000)._replace(duration=HOUR / 2))
    state = IncrementalState(replace(make_snapshot([make_host(1, [0, 1000])], queue), running=(running,)))
    assert [it.session_id for it in state.serve(NOW)] == ["c-short"]


def test_the_second_of_a_class_follows_a_cancelled_first() -> None:
    running, queue = session("r", 1, (100, 1000)), [make_request(name, 1000) for name in ("a", "b")]
    state = IncrementalState(replace(make_snapshot([make_host(1, [0])], queue), running=(running,)))
    assert state.serve(NOW) == []
    state.remove("a")
    state.update([running], [])
    assert [it.session_id for it in state.serve(NOW)] == ["b"]


def test_cores_that_fall_free_alone_are_noted() -> None:
    held = RunningSession("r", 2, 1, 14, 1, (), NOW - HOUR)
    queue = [make_request(name, cpu=cpu)._replace(queued_at=NOW) for name, cpu in (("a-head", 16), ("b", 4))]
    host = replace(make_host(1), cpu_free=2)
    state = IncrementalState(replace(make_snapshot([host], queue), running=(held,)))
    assert state.serve(NOW) == []
    state.update([held], [held._replace(cpu=12)])
    assert [it.session_id for it in state.serve(NOW)] == ["b"]


def test_a_limit_that_the_pass_has_reached_is_the_reason() -> None:
    running = session("r", 1, (100, 1000), owner=2)._replace(ends_at=NOW + 2 * HOUR)
    queue = [make_request("a-head", 2000, owner=2), make_request("b", 1000), make_request("c")._replace(duration=HOUR)]
    limited = LimitHolder(limits=PolicyLimits(sessions=1), used=Amounts())
    world = make_snapshot([make_host(1, [0, 0])], queue, {1: limited})
    endless = session("endless", 1, (101, 1000), owner=2)
    world = replace(world, running=(running, endless), rules={1: Rules(reservation_delay=2000 * HOUR)})
    state = IncrementalState(world)
    assert [it.session_id for it in state.serve(NOW)] == ["c"]
    start = state.starts(NOW, LOOK_AHEAD)["b"]
    assert start.at == NOW + 2 * HOUR
    assert "the same limit" in start.eta_reason


def test_without_its_head_a_group_is_served_in_order() -> None:
    """A start elsewhere puts the head above its limit: not the shortest is next, but who would become the head."""
    running = (
        session("x", 1, (101, 1000), owner=2)._replace(ends_at=NOW + 3 * HOUR),
        session("y", 2, (200, 1000), owner=2)._replace(ends_at=NOW + HOUR),
    )
    queue = [
        make_request("elsewhere", 1000, group=2)._replace(duration=9 * HOUR),
        make_request("head", 2000),
        make_request("long", 1000, owner=2)._replace(duration=9 * HOUR),
        make_request("short", 1000, owner=2)._replace(duration=5 * HOUR),
    ]
    owners = {
        owner: LimitHolder(limits=PolicyLimits(sessions=most), used=Amounts()) for owner, most in ((1, 1), (2, 9))
    }
    world = make_snapshot([make_host(1, [1000, 0]), make_host(2, [0], group=2)], queue, owners)
    etas = {it.session_id: it.eta for it in plan(replace(world, running=running), NOW).waiting}
    assert (etas["elsewhere"], etas["long"], etas["short"]) == (NOW + HOUR, NOW + HOUR, NOW + 3 * HOUR)


def test_one_refused_for_its_traits_refuses_nobody_else() -> None:
    queue = [make_request("a", 1000, roots=(7,)), make_request("b", 1000)]
    assert placed(make_snapshot([make_host(1, [1000])], queue)) == {"b": 1}


def test_scarce_requests_weigh_by_the_square_of_supply() -> None:
    model = f"{GPU_MODEL_TRAIT}:A100"
    anywhere, wide, nowhere = Shape(1, 1, 500), Shape(1, 1, 8000), Shape(999, 1, 1000)
    of_model, large = Shape(1, 1, 1000, (model,)), Shape(1, 99, 1000)
    of_its_model = replace(make_host(1, [1000] * 8, memory=8), traits=frozenset({model, "storage:x"}))
    hosts = [of_its_model, *(make_host(number, [1000], memory=99) for number in range(2, 10))]
    usual = [(anywhere, 3), (wide, 1), (nowhere, 9), (of_model, 2), (large, 1)]
    weighed = [(anywhere, 3000), (wide, 4000), (of_model, 8000), (large, 4000)]
    assert weighed_by_scarcity(usual, hosts) == weighed


def test_requests_of_another_model_can_use_nothing() -> None:
    model = f"{GPU_MODEL_TRAIT}:A100"
    measure = Fragmentation([(Shape(1, 1, 1000, (model,)), 3)], 1000)
    assert [measure.unusable(8, 8, [1000], traits) for traits in (frozenset({model}), frozenset[str]())] == [0, 3000]
