"""Random replays with preemptible sessions on the state of a scheduler, without a database."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import pytest

from scheduler.core.tests.worlds import NOW, make_host
from scheduler.core.types import Rules, RunningSession, SessionRequest, Snapshot
from scheduler.snapshot.claims import claim_from, holds_of
from scheduler.snapshot.host_traits import OfferedTraits
from scheduler.snapshot.queue import FullState, StateChanges, WaitingSession
from scheduler.state.scheduler_state import SchedulerState
from sessions.lifecycle import Reason
from sessions.models import STOP_DURATION, WaitStatus
from sessions.requeueing.preemption import StoredClaim

MINUTE = timedelta(minutes=1)
GRACE = 2 * MINUTE
STEPS = 60
NO_TRAITS = OfferedTraits(hosts={}, architectures={})
HOSTS = (make_host(1, [1000] * 4, cpu=32, memory=64), make_host(2, [1000] * 2, cpu=16, memory=64))


@dataclass
class Replay:
    """What the database would hold, and a scheduler that may die at any step."""

    random: Random
    now: datetime = NOW
    running: dict[str, RunningSession] = field(default_factory=dict)
    waiting: dict[str, WaitingSession] = field(default_factory=dict)
    claims: dict[str, StoredClaim] = field(default_factory=dict)
    preemptible: set[str] = field(default_factory=set)
    ended_for: dict[str, str] = field(default_factory=dict)
    starts: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)

    def state(self) -> SchedulerState:
        """Return the state of a scheduler that has just begun."""
        held: Counter[int] = Counter()
        holds = [
            hold
            for name, claim in self.claims.items()
            if name in self.waiting
            for hold in holds_of(self.waiting[name].request, claim, Rules())
        ]
        everything = [*self.running.values(), *holds]
        for one in everything:
            held.update(dict(one.shares))
        hosts = tuple(
            type(host)(
                id=host.id,
                name=host.name,
                group_id=1,
                cpu=host.cpu,
                memory_bytes=host.memory_bytes,
                cpu_free=host.cpu - sum(one.cpu for one in everything if one.host_id == host.id),
                memory_free_bytes=host.memory_bytes
                - sum(one.memory_bytes for one in everything if one.host_id == host.id),
                gpus=tuple(gpu._replace(free_milli=gpu.capacity_milli - held[gpu.id]) for gpu in host.gpus),
            )
            for host in HOSTS
        )
        queue = tuple(one.request for name, one in self.waiting.items() if name not in self.claims)
        snapshot = Snapshot(hosts=hosts, queue=queue, owners={}, running=tuple(everything))
        return SchedulerState(
            FullState(
                snapshot=snapshot, waiting=tuple(self.waiting.values()), offered=NO_TRAITS, claims=self.claims, since=""
            )
        )

    def submit(self, name: str) -> None:
        is_preemptible = self.random.random() < 0.6
        shape = self.random.choice(((1, 1, 500), (2, 2, 1000), (4, 4, 2000), (1, 1, 250), (8, 8, 0)))
        request = SessionRequest(name, 1, 1, *shape, queued_at=self.now, is_preemptible=is_preemptible)
        status = WaitStatus(name, Reason.NO_CAPACITY.value, "")
        self.waiting[name] = WaitingSession(request, None, True, None, False, None, status)._replace(status=status)
        if is_preemptible:
            self.preemptible.add(name)

    def serve(self, state: SchedulerState) -> None:
        """Make a pass as `passes` and `preemption.settle` do, writing here instead of into a database."""
        for placement in state.serve(self.now):
            request = self.waiting.pop(placement.session_id).request
            self.claims.pop(request.id, None)
            self.starts[request.id] = self.now, placement.host_id
            self.running[request.id] = RunningSession(
                *(request.id, 1, placement.host_id, request.cpu, request.memory_bytes, placement.shares, self.now),
                is_preemptible=request.is_preemptible,
            )
        for name in state.lapsed:
            self.claims.pop(name, None)
        for name in state.claims.spared([host.id for host in HOSTS]):
            self.running[name] = self.running[name]._replace(preempted_for="", is_preemptible=True, ends_at=None)
        for name in [*state.claims.due(self.now)]:
            self.ended_for[name] = self.running.pop(name).preempted_for
        while found := state.find_preemption(1, self.now, self.now + GRACE + STOP_DURATION):
            claim = self.claims[found.session_id] = claim_from(found, 1, self.now, GRACE)
            state.accept(found, claim)
            for victim_id in found.victim_ids:
                assert victim_id in self.preemptible
                victim = self.running[victim_id]
                self.running[victim_id] = victim._replace(
                    is_preemptible=False, preempted_for=found.session_id, ends_at=claim.at + STOP_DURATION
                )

    def changes(self, names: set[str]) -> StateChanges:
        """Return what a scheduler that goes on reads of these sessions."""
        return StateChanges(
            ids=frozenset(names),
            waiting=[self.waiting[name] for name in names if name in self.waiting],
            running=[self.running[name] for name in names if name in self.running],
            claims={name: claim for name, claim in self.claims.items() if name in names},
            since="",
        )

    def check(self) -> None:
        """Nothing is held twice."""
        for host in HOSTS:
            here = [one for one in self.running.values() if one.host_id == host.id]
            assert sum(one.cpu for one in here) <= host.cpu
            held = Counter[int]()
            for one in here:
                held.update(dict(one.shares))
            assert all(held[gpu.id] <= gpu.capacity_milli for gpu in host.gpus)


@pytest.mark.parametrize("seed", range(40))
def test_whoever_ends_others_starts_and_nobody_ends_for_nothing(seed: int) -> None:
    random = Random(seed)
    replay = Replay(random)
    state = replay.state()
    claimed: dict[str, datetime] = {}
    names: set[str] = set()
    for step in range(STEPS):
        for number in range(random.randint(0, 2)):
            replay.submit(f"s{step:02}-{number}")
        for name in random.sample(sorted(replay.running), k=min(1, len(replay.running))):
            if random.random() < 0.3:
                del replay.running[name]
        for name in random.sample(sorted(replay.waiting), k=min(1, len(replay.waiting))):
            if random.random() < 0.1:
                del replay.waiting[name]
                replay.claims.pop(name, None)
                replay.cancelled.add(name)
        names |= set(replay.running) | set(replay.waiting)
        if random.random() < 0.2:
            state = replay.state()
        else:
            state.apply_changes(replay.changes(names), replay.now)
        replay.serve(state)
        replay.check()
        for name, claim in replay.claims.items():
            claimed.setdefault(name, claim.at)
        replay.now += MINUTE
    late = {name for name, at in claimed.items() if at + 2 * MINUTE < replay.now and name not in replay.cancelled}
    assert late <= replay.starts.keys()
    assert set(replay.ended_for.values()) <= replay.starts.keys() | replay.cancelled | replay.claims.keys()
    assert claimed
