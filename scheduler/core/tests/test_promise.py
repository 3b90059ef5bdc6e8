"""The promise to the first in line: told a start, it starts no later, whatever pulls take and whoever overstays.

Whatever run times are predicted, too. Replays of random sessions on the incremental state, as a platform goes through
them: placed, started after a pull that may take longer than the allowance, stopped at the limit or before, and now and
then by far too late, as with a process that cannot be killed. Some that wait start in another group. A promise is
withdrawn where a session that it relies on overstays its latest end, where fair share lets another go first, and where
one ahead that no host could hold, as a session on each had overstayed, starts or becomes the head again. Nothing else
may break it.

Each test was seen to fail under these faults, planted in the product:

| test_... | planted faults |
|---|---|
| the_first_in_line_never_starts_later_than_told | pulls are not planned for; nor is the stop; a start after the |
| | allowance does not count against the limit; backfill takes anything |
| an_overdue_session_does_not_pin_the_head | ends that are overdue count as now, however long |
| a_whole_host_is_not_sought_where_one_overstays | the same; what overstays counts as leaving |
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import get_args

import pytest

from scheduler.core.incremental_state import IncrementalState
from scheduler.core.tests.timelines import HOUR, at
from scheduler.core.tests.worlds import NOW, UNLIMITED, make_host, make_request, make_snapshot, plan
from scheduler.core.types import OVERDUE_GRACE, ClusterMode, QueueOrder, Rules, RunningSession, SessionRequest, Snapshot

MINUTE = timedelta(minutes=1)
ALLOWANCE, STOP = 5 * MINUTE, MINUTE  # planned for a start, and for a stop
SESSIONS = 24


@dataclass(frozen=True, slots=True)
class Promise:
    """What the head was told, the latest ends of the sessions that this relies on, and who was passed over for it."""

    starts: datetime
    relies_on: dict[str, datetime]
    ahead: frozenset[str]  # of these each host that could hold it has an overdue session


@dataclass(slots=True)
class Replay:
    """A platform in virtual time, and what the first in line was told."""

    random: Random
    order: QueueOrder
    clusters: float = 0  # part of the requests that are for several members
    state: IncrementalState = field(init=False)
    events: list[tuple[datetime, int, str, str]] = field(default_factory=list)  # time, number, what, session id
    requests: dict[str, SessionRequest] = field(default_factory=dict)
    running: dict[str, RunningSession] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)
    overstayed: set[str] = field(default_factory=set)
    count: int = 0
    kept: int = 0
    withdrawn: int = 0
    broken: int = 0

    def __post_init__(self) -> None:
        hosts = [make_host(number, [1000] * self.random.choice((2, 4))) for number in range(1, 4)]
        rules = Rules(overhead=ALLOWANCE + STOP, queue_order=self.order, reservation_delay=3 * HOUR)
        world = Snapshot(hosts=tuple(hosts), queue=(), owners={1: UNLIMITED, 2: UNLIMITED}, rules={1: rules})
        self.state = IncrementalState(world)
        for number in range(SESSIONS):
            name, joins = f"s{number}", NOW + self.random.randint(0, 300) * MINUTE + timedelta(seconds=number)
            duration = None if self.random.random() < 0.05 else self.random.randint(1, 12) * 20 * MINUTE
            fgpu = self.random.choice((250, 500, 1000, 1000, 2000, 4000))
            request = make_request(name, fgpu, owner=self.random.choice((1, 1, 2)))
            predicted = self.random.choice((None, 10 * MINUTE, HOUR, 5 * HOUR))  # right or wrong
            request = request._replace(duration=duration, queued_at=joins, predicted=predicted)
            self.requests[name] = self.as_cluster(request)
            self.expect(joins, "join", name)
            if self.random.random() < 0.2:  # it waits in another group as well
                self.expect(joins + self.random.randint(1, 180) * MINUTE, "start_elsewhere", name)

    def as_cluster(self, request: SessionRequest) -> SessionRequest:
        """Return the request, or now and then one for a cluster of several members that may span hosts."""
        members = self.random.randint(2, 6)
        if self.random.random() >= self.clusters:
            return request
        return request._replace(
            cpu=members * request.cpu,
            memory_bytes=members * request.memory_bytes,
            fgpu_milli=members * self.random.choice((250, 500, 1000, 2000)),
            members=members,
            mode=self.random.choice(get_args(ClusterMode)),
            member_ids=(request.id, *(f"{request.id}.{rank}" for rank in range(1, members))),
        )

    def expect(self, moment: datetime, what: str, name: str) -> None:
        self.count += 1
        heappush(self.events, (moment, self.count, what, name))

    def run(self) -> None:
        while self.events:
            now, _, what, name = heappop(self.events)
            getattr(self, what)(name, now)
            self.overstayed.update(one.session_id for one in self.running.values() if one.ends_at and one.ends_at < now)
            ahead = {
                name: {request.id for request in self.state.ahead_of(name, now)}
                for name in self.promises
                if name in self.state.requests
            }
            placed = [placement.session_id for placement in self.state.serve(now)]
            self.check(placed, ahead, now)
            for session_id in placed:
                self.place(session_id, now)

    def join(self, name: str, now: datetime) -> None:
        self.state.add(self.requests[name])

    def start_elsewhere(self, name: str, now: datetime) -> None:
        """Let it start in another group, whose pass this one knows nothing of, if it still waits."""
        if name in self.state.requests:
            self.state.remove(name)
            self.promises.pop(name, None)

    def place(self, name: str, now: datetime) -> None:
        """Plan the life of a session that was placed now."""
        (group,) = self.state.cluster.groups.values()
        self.running[name] = group.running[name]
        duration = self.request_of(name).duration
        begins = now + self.random.choice((0, 1, 4, 5, 9, 40)) * MINUTE
        stopped = begins + (duration or 8 * HOUR) * self.random.choice((0.1, 0.5, 1, 1, 1))
        if duration is not None:
            stopped = min(stopped, min(begins, now + ALLOWANCE) + duration)
        gone = stopped + self.random.choice((0, 0.5, 1)) * STOP
        if self.random.random() < 0.04:
            gone += self.random.randint(1, 10) * HOUR
        if begins < stopped:
            self.expect(begins, "begin", name)
        self.expect(stopped, "stop", name)
        self.expect(gone, "end", name)

    def request_of(self, name: str) -> SessionRequest:
        """Return the request of a session, or of the cluster of which it is a member."""
        return self.requests[name.partition(".")[0]]

    def begin(self, name: str, now: datetime) -> None:
        """Let it run: its limit counts from now, but from the end of the allowance at the latest."""
        was, duration = self.running[name], self.request_of(name).duration
        clock = min(now, was.started_at + ALLOWANCE)
        ends_at = None if duration is None else clock + duration + STOP
        self.change(was, was._replace(started_at=now, ends_at=ends_at))

    def stop(self, name: str, now: datetime) -> None:
        was = self.running[name]
        ends_at = min(now + STOP, was.ends_at or now + STOP)
        self.change(was, was._replace(ends_at=ends_at))
        self.expect(ends_at + OVERDUE_GRACE + timedelta(seconds=1), "tick", name)

    def change(self, was: RunningSession, now: RunningSession) -> None:
        self.running[was.session_id] = now
        self.state.update([was], [now])

    def end(self, name: str, now: datetime) -> None:
        self.state.update([self.running.pop(name)], [])

    def tick(self, name: str, now: datetime) -> None:
        """Serve, as the periodic pass does."""

    def check(self, placed: list[str], ahead: dict[str, set[str]], now: datetime) -> None:
        """Compare what happens with what was told, and note what is told now."""
        (group,) = self.state.cluster.groups.values()
        told = group.reservation.at if group.reservation else None
        first = group.head.id if group.head else None
        head = first if told else None
        for name, promise in list(self.promises.items()):
            before = ahead[name] if self.order == QueueOrder.FAIR else promise.ahead
            overtaken = before.intersection(placed)
            if overtaken or any(one in self.overstayed for one in promise.relies_on):
                self.withdrawn += 1
            elif name in placed or (name == head and told is not None):
                starts = now if name in placed or told is None else told
                self.broken += starts > promise.starts
                self.kept += name in placed
            elif first in promise.ahead:
                self.withdrawn += 1
            else:
                assert self.order != QueueOrder.FIFO, "in a FIFO group nobody else becomes the first in line"
            del self.promises[name]
        if head is not None and told is not None and group.reservation is not None:
            hosts = {host.host_id for host in group.reservation.hosts}
            there = [one for one in group.running.values() if one.host_id in hosts]
            relies_on = {one.session_id: one.ends_at for one in there if one.ends_at and one.ends_at <= told}
            ahead_of_head = frozenset(request.id for request in self.state.ahead_of(head, now))
            self.promises[head] = Promise(told, relies_on, ahead_of_head)


@pytest.mark.parametrize("clusters", [0, 0.3])
@pytest.mark.parametrize("order", QueueOrder)
@pytest.mark.parametrize("replays", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_the_first_in_line_never_starts_later_than_promised(replays: int, order: QueueOrder, clusters: float) -> None:
    kept = withdrawn = broken = 0
    for seed in range(replays):
        replay = Replay(Random(seed), order, clusters)
        replay.run()
        kept, withdrawn, broken = kept + replay.kept, withdrawn + replay.withdrawn, broken + replay.broken
    assert broken == 0
    assert kept > replays
    assert withdrawn > replays / 10


def test_an_overdue_session_does_not_pin_the_head() -> None:
    stuck = RunningSession("stuck", 2, 1, 1, 1, ((100, 1000), (101, 1000)), at(-2), at(0))
    others = tuple(RunningSession(f"r{n}", 2, 2, 1, 1, ((200 + n, 1000),), at(-1), at(1 + n)) for n in range(2))
    queue = [make_request("head", 2000), *(make_request(f"later{n}", 1000)._replace(duration=HOUR) for n in range(64))]
    world = make_snapshot([make_host(1, [0, 0]), make_host(2, [0, 0])], queue, {2: UNLIMITED})
    world = replace(world, running=(stuck, *others))
    (head, *_) = plan(world, at(0) + OVERDUE_GRACE).waiting
    assert head.eta == at(0) + OVERDUE_GRACE  # it may end at any moment
    (head, *_) = plan(world, at(0.1)).waiting
    assert head.eta == at(2)
    free = replace(world, hosts=(make_host(1, [0, 0]), make_host(2, [1000, 0])), running=(stuck, others[1]))
    assert plan(free, at(1.5)).placements == ()  # nobody passes: none would end before the head's start


def test_a_whole_host_is_not_sought_where_one_overstays() -> None:
    stuck = RunningSession("stuck", 2, 1, 1, 1, ((100, 500),), at(-9), at(0))
    other = RunningSession("other", 2, 2, 1, 1, ((200, 1000), (201, 1000)), at(-1))
    queue = [make_request("head", 2000), make_request("small", 500)]
    world = make_snapshot([make_host(1, [500, 1000]), make_host(2, [0, 0])], queue, {2: UNLIMITED})
    world = replace(world, running=(stuck, other), rules={1: Rules(reservation_delay=HOUR)})
    (placement,) = plan(world, at(2)).placements
    assert (placement.session_id, placement.host_id) == ("small", 1)  # the host reserved as a whole is the other one
