"""When sessions not yet submitted would start as preemptible ones end for them. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import Preemption, find_preemption
from scheduler.core.types import SessionRequest
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.snapshot.claims import CLAIM_ETA_REASON, claim_from, holds_of, warned
from sessions.models import STOP_DURATION


def state_for_preemption(
    cluster: ClusterState, request: SessionRequest, graces: Mapping[int, timedelta]
) -> ClusterState | None:
    """Return a copy of the state on which others may end for a request; None if none would.

    `graces` is the time between warning and end, by group id.
    """
    if request.group_id not in graces or request.group_id not in cluster.groups or request.is_preemptible:
        return None
    return cluster.copy() if any(session.is_preemptible for session in cluster.running_sessions()) else None


def starts_by_preemption(
    cluster: ClusterState,
    requests: Sequence[SessionRequest],
    starts: Mapping[str, StartEstimate],
    now: datetime,
    grace: timedelta,
) -> dict[str, StartEstimate]:
    """Return the starts of those waiting requests that start sooner than by `starts`, as others end for them.

    The requests are equal but for their ids; the cluster state is consumed.
    """
    at, group = now + grace + STOP_DURATION, cluster.groups[requests[0].group_id]
    found: dict[str, StartEstimate] = {}
    for request in requests:
        known = starts.get(request.id)
        if (known is not None and known.at <= at) or cluster.limits.are_exceeded_by(request):
            continue
        decision = find_preemption(group, request, Candidates(cluster.running_sessions()), now)
        if decision is None:
            break
        _apply(cluster, decision, request, now, grace)
        found[request.id] = StartEstimate(at, CLAIM_ETA_REASON)
    return found


def _apply(
    cluster: ClusterState, decision: Preemption, request: SessionRequest, now: datetime, grace: timedelta
) -> None:
    """Have the request hold what it will have, and its victims end."""
    claim, group = claim_from(decision, request.group_id, now, grace), cluster.groups[request.group_id]
    if group.head is not None and group.head.id == request.id:
        group.clear_head()
    for victim_id in decision.victim_ids:
        victim = group.running[victim_id]
        cluster.remove_running(victim)
        cluster.add_running(warned(victim, request.id, claim.at))
    for hold in holds_of(request, claim, group.rules):
        cluster.add_running(hold)
