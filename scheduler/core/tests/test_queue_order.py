"""Order in which requests are served.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| waiting_longer_never_means_later_service | last come, first served, in the group or among a user's own |
| time_alone_never_reorders_a_fifo_group | a point of priority is worth more the longer one has waited |
| a_point_of_priority_equals_the_groups_ageing | priority counts against its session |
| preemptible_requests_come_after_all_others | served by time alone, in either order |
| fairness_splits_gpus_evenly_between_equal_users | a user's share is read once and not after each placement |
"""

from dataclasses import replace
from datetime import datetime
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.queue.order import queues_of, sequence
from scheduler.core.tests.timelines import HOUR, at, many, worlds
from scheduler.core.tests.worlds import make_host, make_request, make_snapshot, placed, plan
from scheduler.core.types import QueueOrder, Rules, Snapshot


def order_served(snapshot: Snapshot, now: datetime) -> list[str]:
    """Return the ids in the order in which a pass evaluates them."""
    cluster = ClusterState(snapshot)
    served = []
    queues = queues_of(snapshot.queue, snapshot.rules)
    for request in sequence(*queues, cluster.fair_shares, lambda _: False, now):
        served.append(request.id)
        if not cluster.limits.are_exceeded_by(request):
            cluster.place(request, now)
    return served


def shuffled(world: Snapshot, random: Random, order: QueueOrder) -> Snapshot:
    """Return `world` with random priorities and joining times, served by `order`."""
    queue = [
        request._replace(
            priority=random.randint(0, 3),
            queued_at=at(-random.randint(0, 12) / 2),
            is_preemptible=random.random() < 1 / 4,
        )
        for request in world.queue
    ]
    rules = {group: replace(rule, queue_order=order, ageing=2 * HOUR) for group, rule in world.rules.items()}
    return replace(world, queue=tuple(queue), rules=rules)


@many
@given(worlds(), st.randoms(use_true_random=True), st.sampled_from(QueueOrder))
def test_waiting_longer_never_means_later_service(world: Snapshot, random: Random, order: QueueOrder) -> None:
    world = shuffled(world, random, order)
    chosen = random.choice(world.queue)
    before = order_served(world, at(0)).index(chosen.id)
    earlier = chosen._replace(queued_at=chosen.queued_at - random.randint(1, 20) * HOUR / 2)
    queue = tuple(earlier if request is chosen else request for request in world.queue)
    assert order_served(replace(world, queue=queue), at(0)).index(chosen.id) <= before


@many
@given(worlds(), st.randoms(use_true_random=True))
def test_time_alone_never_reorders_a_fifo_group(world: Snapshot, random: Random) -> None:
    world = shuffled(world, random, QueueOrder.FIFO)
    assert order_served(world, at(0)) == order_served(world, at(random.randint(1, 100)))


@many
@given(worlds(), st.randoms(use_true_random=True), st.sampled_from(QueueOrder))
def test_preemptible_requests_come_after_all_others(world: Snapshot, random: Random, order: QueueOrder) -> None:
    world = shuffled(world, random, order)
    by_id = {request.id: request for request in world.queue}
    served = [by_id[name] for name in order_served(world, at(0))]
    for group_id in {host.group_id for host in world.hosts}:
        preemptible = [request.is_preemptible for request in served if request.group_id == group_id]
        assert preemptible == sorted(preemptible)


def test_a_point_of_priority_equals_the_groups_ageing() -> None:
    old, urgent = make_request("old"), make_request("urgent")._replace(priority=2)
    rules = {1: Rules(ageing=3 * HOUR)}

    def served(joined: datetime) -> list[str]:
        queue = (old, urgent._replace(queued_at=joined))
        return order_served(replace(make_snapshot([make_host(1)], queue), rules=rules), joined)

    assert served(at(5.9)) == ["urgent", "old"]
    assert served(at(6.1)) == ["old", "urgent"]


def test_fairness_splits_gpus_evenly_between_equal_users() -> None:
    queue = [make_request(f"{owner}{n}", 1000, owner=owner) for owner in (1, 2) for n in range(8)]
    snapshot = replace(make_snapshot([make_host(1, [1000] * 8)], queue), rules={1: Rules(queue_order=QueueOrder.FAIR)})
    owners = [name[0] for name in placed(plan(snapshot))]
    assert owners == ["1", "2"] * 4


def test_fairness_counts_dominant_shares_and_current_usage() -> None:
    cores = [make_request(f"c{n}", cpu=2, owner=1) for n in range(8)]
    gpus = [make_request(f"g{n}", 1000, owner=2) for n in range(4)]
    host = make_host(1, [1000] * 4, cpu=18)
    snapshot = replace(make_snapshot([host], [*cores, *gpus]), rules={1: Rules(queue_order=QueueOrder.FAIR)})
    names = list(placed(plan(snapshot)))
    assert names[:6] == ["c0", "g0", "c1", "c2", "g1", "c3"]  # 2 of 18 cores against 1 of 4 GPUs
