"""A scheduler that has just begun decides as one that goes on, preemption included.

Random histories without a database, in which both decide at each step, and what they decide is written. Faults
that they are for: claims are served before the reservations of the last pass are dropped; a claim takes elsewhere what
is reserved for the head; sessions that are due join after the claims.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from random import Random
from typing import get_args

import pytest

from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.tests.timelines import MIX
from scheduler.core.tests.worlds import NOW, UNLIMITED, make_host, make_request
from scheduler.core.types import (
    ClusterMode,
    PlacementPolicyName,
    QueueOrder,
    Rules,
    RunningSession,
    Snapshot,
    latest_end,
)
from scheduler.core.waiting.run_times import RunTimes
from scheduler.snapshot.claims import claim_from, holds_of, warned
from scheduler.snapshot.host_traits import OfferedTraits
from scheduler.snapshot.queue import FullState, StateChanges, WaitingSession
from scheduler.state.likely_starts import LikelyStarts
from scheduler.state.scheduler_state import SchedulerState
from sessions.models import STOP_DURATION, WaitStatus
from sessions.requeueing.preemption import StoredClaim

MINUTE = timedelta(minutes=1)
GRACE = 2 * MINUTE
STEPS = 40
GIB = 2**30
OWNERS = (1, 2, 3)
NO_TRAITS = OfferedTraits(hosts={}, architectures={})
HOSTS = tuple(make_host(number, [1000] * gpus, cpu=8 * gpus, memory=64) for number, gpus in ((1, 4), (2, 2), (3, 1)))
Decision = tuple[object, ...]


@dataclass
class Platform:
    """What a database would hold."""

    random: Random
    rules: Rules
    now: datetime = NOW
    running: dict[str, RunningSession] = field(default_factory=dict)
    waiting: dict[str, WaitingSession] = field(default_factory=dict)
    claims: dict[str, StoredClaim] = field(default_factory=dict)
    preemptible: dict[str, RunningSession] = field(default_factory=dict)  # as they were before a warning
    names: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)  # clusters

    def afresh(self) -> SchedulerState:
        """Return the state of a scheduler that has just begun."""
        holds = [holds_of(self.waiting[name].request, claim, self.rules) for name, claim in self.claims.items()]
        running = [*self.running.values(), *chain.from_iterable(holds)]
        held = Counter[int]()
        for one in running:
            held.update(dict(one.shares))
        hosts = tuple(
            replace(
                host,
                cpu_free=host.cpu - sum(one.cpu for one in running if one.host_id == host.id),
                memory_free_bytes=host.memory_bytes
                - sum(one.memory_bytes for one in running if one.host_id == host.id),
                gpus=tuple(gpu._replace(free_milli=gpu.capacity_milli - held[gpu.id]) for gpu in host.gpus),
            )
            for host in HOSTS
        )
        waiting = sorted(
            self.waiting.values(), key=lambda one: (-one.request.priority, one.request.queued_at, one.request.id)
        )
        queue = [
            one.request for one in waiting if one.blocked_status(self.now) is None and one.request.id not in self.claims
        ]
        snapshot = Snapshot(
            hosts=hosts,
            queue=tuple(queue),
            owners=dict.fromkeys(OWNERS, UNLIMITED),
            running=tuple(running),
            rules={1: self.rules},
        )
        return SchedulerState(
            FullState(snapshot=snapshot, waiting=tuple(waiting), offered=NO_TRAITS, claims=dict(self.claims), since="0")
        )

    def changes(self) -> StateChanges:
        """Return what a scheduler that goes on reads."""
        return StateChanges(
            ids=frozenset(self.names),
            waiting=list(self.waiting.values()),
            running=list(self.running.values()),
            claims=dict(self.claims),
            since="0",
        )

    def happen(self, step: int) -> None:
        """Let time pass, and sessions come, end, and be cancelled."""
        self.now += self.random.choice((1, 1, 1, 5, 30)) * MINUTE
        for number in range(self.random.choice((0, 0, 1, 1, 2, 3))):
            self.submit(f"s{step:02}-{number}")
        for name in sorted(self.running):
            one = self.running[name]
            is_over = one.ends_at is not None and one.ends_at <= self.now
            if is_over or self.random.random() < (0.3 if one.preempted_for else 0.05):
                del self.running[name]
                self.ended.add(one.cluster_id)
        for name in [name for name, one in self.running.items() if one.cluster_id and one.cluster_id in self.ended]:
            del self.running[name]
        for name in sorted(self.waiting):
            if self.random.random() < 0.02:
                del self.waiting[name]
                self.claims.pop(name, None)

    def submit(self, name: str) -> None:
        fgpu = self.random.choice((0, 250, 500, 1000, 1000, 2000, 4000))
        request = make_request(
            name, fgpu, cpu=self.random.randint(1, 8), memory=1, owner=self.random.choice(OWNERS)
        )._replace(
            queued_at=self.now,
            duration=self.random.choice((None, 10 * MINUTE, 60 * MINUTE, 300 * MINUTE)),
            is_preemptible=self.random.random() < 0.5,
            priority=self.random.choice((0, 0, 0, 1)),
        )
        if self.random.random() < 0.3:
            members, each = self.random.randint(2, 4), self.random.choice((0, 250, 500, 1000, 1000, 2000))
            request = request._replace(
                cpu=members * self.random.randint(1, 4),
                memory_bytes=members,
                fgpu_milli=members * each,
                members=members,
                mode=self.random.choice(get_args(ClusterMode)),
                member_ids=(name, *(f"{name}.{rank}" for rank in range(1, members))),
            )
        not_before = self.now + 3 * MINUTE if self.random.random() < 0.1 else None
        self.waiting[name] = WaitingSession(request, not_before, True, None, False, None, WaitStatus(name, "", ""))
        self.names |= {name, *request.member_ids}

    def write(self, state: SchedulerState) -> Decision:
        """Make a pass, write what it decides, and return that."""
        placements = state.serve(self.now, lambda: GRACE)
        lapsed, spared = sorted(state.lapsed), state.claims.spared([host.id for host in HOSTS])
        due = [*state.claims.due(self.now)]
        found = []
        while preemption := state.find_preemption(1, self.now, self.now + GRACE + STOP_DURATION):
            found.append(preemption)
            state.accept(preemption, claim_from(preemption, 1, self.now, GRACE))
        statuses = state.update_wait_statuses(self.now, state.incremental.starts(self.now, LOOK_AHEAD))
        for placement in placements:
            request = next(
                one.request
                for one in self.waiting.values()
                if placement.session_id in (one.request.member_ids or (one.request.id,))
            )
            self.claims.pop(request.id, None)
            one = RunningSession(
                *(placement.session_id, request.owner_id, placement.host_id, request.cpu // request.members),
                *(request.memory_bytes // request.members, placement.shares, self.now),
                latest_end(request, self.now, self.rules),
                is_preemptible=request.is_preemptible,
                cluster_id=request.id if request.members > 1 else "",
            )
            self.running[placement.session_id] = one
        for placement in placements:
            self.waiting.pop(placement.session_id, None)
        for whole in {one.cluster_id for one in self.running.values()} - {""}:
            here = [one for one in self.running.values() if one.cluster_id == whole]
            assert len({one.preempted_for for one in here}) == 1, "never half of a cluster"
        for name in lapsed:
            del self.claims[name]
        for name in spared:
            self.running[name] = self.preemptible.pop(name)
        for preemption in found:
            claim = self.claims[preemption.session_id] = claim_from(preemption, 1, self.now, GRACE)
            for name in preemption.victim_ids:
                self.preemptible[name] = self.running[name]
                self.running[name] = warned(self.running[name], preemption.session_id, claim.at)
        for status in statuses:
            self.waiting[status.session_id] = self.waiting[status.session_id]._replace(status=status)
        return sorted(placements), lapsed, spared, due, found, sorted(statuses)


def decisions(seed: int) -> int:
    """Compare the decisions of a history; return how many claims there were."""
    random = Random(seed)
    rules = Rules(
        placement_policy=random.choice(list(PlacementPolicyName)),
        queue_order=random.choice((QueueOrder.FIFO, QueueOrder.FIFO, QueueOrder.FAIR)),
        overhead=6 * MINUTE,
        reservation_delay=random.choice((0, 30, 600)) * MINUTE,
        mix=random.choice((MIX, ())),
    )
    platform, claims = Platform(random, rules), set[str]()
    kept = platform.afresh()
    for step in range(STEPS):
        platform.happen(step)
        afresh = platform.afresh()
        kept.apply_changes(platform.changes(), platform.now)
        kept.likely = LikelyStarts(RunTimes(), {})  # what it has learned would be read from the database
        twin = Platform(random, rules, platform.now)
        twin.running, twin.waiting = platform.running.copy(), platform.waiting.copy()
        twin.claims, twin.preemptible = platform.claims.copy(), platform.preemptible.copy()
        fresh_decision, kept_decision = twin.write(afresh), platform.write(kept)
        assert fresh_decision == kept_decision, (seed, step)
        claims |= platform.claims.keys()
    return len(claims)


@pytest.mark.parametrize("histories", [60, pytest.param(2000, marks=pytest.mark.long(6))])
def test_a_state_read_afresh_decides_as_one_that_goes_on(histories: int) -> None:
    assert sum(map(decisions, range(histories))) > histories
