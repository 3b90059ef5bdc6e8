"""When sessions not yet submitted would start as preemptible ones end for them. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from scheduler.claims import CLAIM_ETA_REASON, claim_from, hold_of, warned
from scheduler.core.cluster_state import ClusterState
from scheduler.core.forecast import StartEstimate
from scheduler.core.preemption import Candidates, Preemption, find_preemption
from scheduler.core.types import SessionRequest
from sessions.models import STOP_DURATION


def starts_by_preemption(
    cluster: ClusterState,
    requests: Sequence[SessionRequest],
    starts: Mapping[str, StartEstimate],
    now: datetime,
    graces: Mapping[int, timedelta],
) -> dict[str, StartEstimate]:
    """Return the starts of those waiting requests that start sooner than by `starts`, as others end for them.

    The requests are equal but for their ids; `graces` is the time between warning and end, by group id. The cluster
    state is left as it is.
    """
    group_id = requests[0].group_id
    grace, candidates = graces.get(group_id), Candidates(cluster.running_sessions())
    if grace is None or group_id not in cluster.groups or not candidates.may_end or requests[0].is_preemptible:
        return {}
    at, trial = now + grace + STOP_DURATION, cluster.copy()
    found: dict[str, StartEstimate] = {}
    for request in requests:
        known = starts.get(request.id)
        if (known is not None and known.at <= at) or trial.exceeds_limit(request):
            continue
        decision = find_preemption(trial.groups[group_id], request, Candidates(trial.running_sessions()), now)
        if decision is None:
            break
        _apply(trial, decision, request, now, grace)
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
    cluster.add_running(hold_of(request, claim, group.rules))
