"""The incremental state decides what `placement.plan`, the specification, decides on the whole state.

Seen to fail under these faults, planted in the product: the host reserved for the last head, or one that has gained
capacity, is not evaluated; nor are requests that no longer exceed a limit, the first of a group, or new ones; ranks of
hosts survive a pass; the queue ignores priority and ageing; a forecast changes the state itself.
"""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.limits import Amounts
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD, plan
from scheduler.core.tests.timelines import HOUR, in_several, random_waiting, random_world
from scheduler.core.tests.worlds import NOW, make_host, make_request
from scheduler.core.types import LimitHolder, PlacementPolicyName, QueueOrder, RunningSession, Snapshot
from scheduler.core.waiting.explanation import Explainer

QUARTER = HOUR / 4


class History:
    """Waiting and running sessions as a database would hold them, beside the incremental state."""

    def __init__(self, random: Random, world: Snapshot) -> None:
        self.random = random
        self.world = world
        self.now = max(request.queued_at for request in world.queue)
        self.waiting = {request.id: request for request in world.queue}
        self.running = {running.session_id: running for running in world.running}
        self.count = 0
        self.state = IncrementalState(self.snapshot())

    def snapshot(self) -> Snapshot:
        """Return the whole state as it would be read."""
        queue = sorted(self.waiting.values(), key=lambda request: (-request.priority, request.queued_at, request.id))
        at_first = {running.session_id: running for running in self.world.running}
        gone = [running for name, running in at_first.items() if self.running.get(name) != running]
        came = [running for name, running in self.running.items() if at_first.get(name) != running]
        hosts = {host.id: host for host in self.world.hosts}
        held = {owner_id: owner.used for owner_id, owner in self.world.owners.items()}
        for sign, those in ((1, gone), (-1, came)):
            for one in those:
                host = hosts[one.host_id]
                shares = dict(one.shares)
                hosts[one.host_id] = replace(
                    host,
                    cpu_free=host.cpu_free + sign * one.cpu,
                    memory_free_bytes=host.memory_free_bytes + sign * one.memory_bytes,
                    gpus=tuple(
                        gpu._replace(free_milli=gpu.free_milli + sign * shares.get(gpu.id, 0)) for gpu in host.gpus
                    ),
                )
                held[one.owner_id] += Amounts(
                    cpu=-sign * one.cpu,
                    memory=-sign * one.memory_bytes,
                    fgpu=-sign * one.shape.fgpu_milli,
                    sessions=-sign,
                )
        owners = {
            owner_id: LimitHolder(limits=owner.limits, used=held[owner_id])
            for owner_id, owner in self.world.owners.items()
        }
        return replace(
            self.world,
            hosts=tuple(hosts.values()),
            queue=tuple(queue),
            owners=owners,
            running=tuple(self.running.values()),
        )

    def change(self) -> None:
        """Apply a random event."""
        events = (self.submit, self.submit, self.end, self.end, self.end, self.cancel, self.wait, self.late)
        self.random.choice(events)()

    def submit(self) -> None:
        self.count += 1
        request = random_waiting(self.random, f"n{self.count}", 0.3)
        request = request._replace(
            queued_at=self.now - self.random.randint(0, 3) * QUARTER, priority=self.random.choice((0, 0, 1, 2))
        )
        request = request._replace(is_preemptible=self.random.random() < 1 / 4)
        if self.random.random() < 1 / 3:
            request = in_several(self.random, request)
        self.waiting[request.id] = request
        self.state.add(request)

    def end(self) -> None:
        if self.running:
            name = self.random.choice(sorted(self.running))
            self.state.update([self.running.pop(name)], [])

    def cancel(self) -> None:
        """Cancel a waiting session, often a head, whose reservation is dropped then."""
        heads = [group.head.id for group in self.state.cluster.groups.values() if group.head is not None]
        names = [name for name in heads if name in self.waiting] or sorted(self.waiting)
        if names:
            name = self.random.choice(names)
            del self.waiting[name]
            self.state.remove(name)

    def wait(self) -> None:
        self.now += self.random.randint(1, 6) * QUARTER

    def late(self) -> None:
        """Let a placed session start to run, so that its latest end moves."""
        if self.running:
            name = self.random.choice(sorted(self.running))
            was = self.running[name]
            ends_at = was.ends_at and was.ends_at + QUARTER
            now = self.running[name] = was._replace(started_at=was.started_at + QUARTER, ends_at=ends_at)
            self.state.update([was], [now])

    def check_pass(self) -> None:
        """Serve, and compare with the specification on the whole state."""
        whole = plan(self.snapshot(), self.now)
        placements = self.state.serve(self.now)
        assert set(placements) == set(whole.placements)
        explain = Explainer(self.state.cluster).explain
        starts = self.state.starts(self.now, LOOK_AHEAD)
        for expected in whole.waiting:
            start = starts.get(expected.session_id)
            assert explain(self.waiting[expected.session_id])[1:3] == expected[1:3]
            assert (start and start.at, start.eta_reason if start else "") == expected[3:]
        assert len({placement.session_id for placement in placements}) == len(placements)
        for placement in placements:
            request = self.waiting.pop(placement.session_id)
            ends_at = None if request.duration is None else self.now + request.duration
            self.running[request.id] = RunningSession(
                request.id, request.owner_id, placement.host_id, *request.shape[:2], placement.shares, self.now, ends_at
            )


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=True), st.integers(1, 5), st.integers(1, 25), st.integers(1, 14))
def test_incremental_passes_equal_the_specification(random: Random, hosts: int, queue: int, passes: int) -> None:
    world = random_world(
        random,
        hosts=hosts,
        queue=queue,
        unbounded=0.3,
        limited=True,
        several=0.2,
        placement_policy=random.choice(list(PlacementPolicyName)),
    )
    orders = [random.choice((QueueOrder.FIFO, QueueOrder.FIFO, QueueOrder.FAIR)) for _ in world.rules]
    rules = {
        group_id: replace(rules, queue_order=order, mix=random.choice((rules.mix, ())))
        for (group_id, rules), order in zip(world.rules.items(), orders, strict=True)
    }
    history = History(random, replace(world, rules=rules))
    for _ in range(passes):
        history.check_pass()
        for _ in range(random.choice((0, 1, 1, 2, 3, 8))):
            history.change()


class CountingRank(int):
    """A rank that counts how often any is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountingRank.compared += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        CountingRank.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_cancelling_many_looks_at_few_others() -> None:
    """Each removal looks at about log2 of those that wait, by bisection: once, 4,000 of 8,000 took seconds."""
    count = 2000
    queue = tuple(make_request(f"s{number:04}", 1000) for number in range(count))
    ranks = {request.id: CountingRank(number) for number, request in enumerate(queue)}
    state = IncrementalState(Snapshot(hosts=(make_host(1),), queue=queue, owners={}), ranks)
    state.serve(NOW)
    CountingRank.compared = 0
    for request in queue[1::2]:
        state.remove(request.id)
    assert CountingRank.compared < 100 * count / 2
    assert len(state.requests) == count / 2
