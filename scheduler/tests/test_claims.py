"""Claims on the state of a scheduler, without a database: what they promise, and when they lapse."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.tests.worlds import NOW, UNLIMITED, make_host, make_request
from scheduler.core.types import HostView, Rules, RunningSession, SessionRequest, Snapshot, latest_end
from scheduler.snapshot.claims import holds_of, start_of, warned
from scheduler.snapshot.host_traits import OfferedTraits
from scheduler.snapshot.queue import FullState, WaitingSession
from scheduler.state.scheduler_state import SchedulerState
from sessions.lifecycle import Reason
from sessions.models import STOP_DURATION, WaitStatus
from sessions.requeueing.preemption import StoredClaim

MINUTE = timedelta(minutes=1)
RULES = Rules(overhead=6 * MINUTE)
CLAIM = StoredClaim(group_id=1, placed=((1, 1, ((100, 1000),)),), at=NOW + 2 * MINUTE)
VICTIM = warned(
    RunningSession("victim", 2, 1, 1, 1, ((100, 1000),), NOW - 60 * MINUTE, is_preemptible=True), "claimant", CLAIM.at
)
CLAIMANT = make_request("claimant", 1000, memory=1)._replace(duration=60 * MINUTE)


def state_of(
    hosts: Sequence[HostView],
    running: Sequence[RunningSession],
    *others: SessionRequest,
    claimant: SessionRequest = CLAIMANT,
    claim: StoredClaim = CLAIM,
) -> SchedulerState:
    """Return a state of empty hosts on which these sessions run, one has a claim and the others wait."""
    everything = [*running, *holds_of(claimant, claim, RULES)]
    held = {gpu: sum(dict(one.shares).get(gpu, 0) for one in everything) for host in hosts for gpu in range(999)}
    views = tuple(
        replace(
            host,
            cpu_free=host.cpu - sum(one.cpu for one in everything if one.host_id == host.id),
            gpus=tuple(gpu._replace(free_milli=gpu.capacity_milli - held[gpu.id]) for gpu in host.gpus),
        )
        for host in hosts
    )
    snapshot = Snapshot(
        hosts=views, queue=others, owners={1: UNLIMITED, 2: UNLIMITED}, running=tuple(everything), rules={1: RULES}
    )
    waiting = tuple(
        WaitingSession(request, None, True, None, False, None, WaitStatus(request.id, Reason.NO_CAPACITY.value, ""))
        for request in (claimant, *others)
    )
    offered = OfferedTraits(hosts={}, architectures={})
    return SchedulerState(
        FullState(snapshot=snapshot, waiting=waiting, offered=offered, claims={claimant.id: claim}, since="0")
    )


def estimate(state: SchedulerState, session_id: str, now: datetime) -> datetime | None:
    """Return the start that a waiting session is told."""
    found = state.update_wait_statuses(now, state.incremental.starts(now, LOOK_AHEAD))
    return next(status.eta for status in found if status.session_id == session_id)


def test_a_start_that_rests_on_a_claim_meets_its_estimate() -> None:
    waits = make_request("waits", 1000, memory=1)
    state = state_of([make_host(1, [1000])], [VICTIM], waits)
    assert state.serve(NOW) == []
    told = estimate(state, "waits", NOW)
    after = state_of([make_host(1, [1000])], [], waits)
    starts = start_of(CLAIM)
    (placement,) = after.serve(starts)
    assert placement.session_id == "claimant"
    ends = after.placed("claimant").ends_at
    assert told == ends == latest_end(CLAIMANT, starts, RULES) == NOW + 2 * MINUTE + STOP_DURATION + 66 * MINUTE


@pytest.mark.parametrize("has_victim", [True, False])
@pytest.mark.parametrize(
    ("host", "claimant", "claim"),
    [
        (make_host(1, [1000]), CLAIMANT._replace(traits=("storage:1",)), CLAIM),
        (
            make_host(1, [1000], divides=False),
            CLAIMANT._replace(fgpu_milli=500),
            replace(CLAIM, placed=((1, 1, ((100, 500),)),)),
        ),
        (make_host(1, [1000], cpu=2), CLAIMANT._replace(cpu=3), CLAIM),
        (make_host(1, []), CLAIMANT, CLAIM),
    ],
    ids=["trait", "divides", "cores", "gpus"],
)
def test_a_claim_lapses_where_its_host_could_not_hold_it(
    host: HostView, claimant: SessionRequest, claim: StoredClaim, *, has_victim: bool
) -> None:
    running = [VICTIM._replace(shares=())] if has_victim else []
    state = state_of([host], running, claimant=claimant, claim=claim)
    assert state.serve(NOW) == []
    assert (state.lapsed, state.claims.get("claimant")) == ({"claimant"}, None)
    assert state.claims.spared([1]) == (["victim"] if has_victim else [])


def test_a_claim_elsewhere_leaves_the_head_its_reservation() -> None:
    ending = RunningSession("ending", 2, 2, 1, 1, ((200, 1000),), NOW, NOW + 30 * MINUTE)
    head = make_request("head", 2000, memory=1)._replace(duration=60 * MINUTE)
    state = state_of([make_host(1, [1000]), make_host(2, [1000, 1000])], [VICTIM, ending], head)
    assert state.serve(NOW) == []
    assert (estimate(state, "head", NOW), "claimant" in state.claims) == (NOW + 30 * MINUTE, True)
    short = CLAIMANT._replace(duration=10 * MINUTE)
    state = state_of([make_host(1, [1000]), make_host(2, [1000, 1000])], [VICTIM, ending], head, claimant=short)
    (placement,) = state.serve(NOW)  # it ends before the head's start
    assert (placement.session_id, placement.host_id) == ("claimant", 2)
