"""Advice on a session not yet submitted: when it would start, why then, and what would start sooner. Pure.

It uses the state and rules of a pass, so the answer is what the next pass does if nothing changes before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

from resources.units import FGPU_STEP
from scheduler.core.cluster_state import ClusterState
from scheduler.core.explanation import Explainer
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import SessionRequest, Snapshot

LOOK_AHEAD: Final = 30  # distinct moments of session ends: bounds the cost of an answer while a slider moves

Starts = datetime | Literal["now"] | None  # None: cannot be estimated


class Alternative(NamedTuple):
    """A changed request that starts sooner: its group and its milli-fGPU."""

    group_id: int
    fgpu_milli: int
    starts: Starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """When the request starts, why not now, why then, and the alternatives that start sooner, the closest first."""

    starts: Starts
    reason: str = ""
    eta_reason: str = ""
    alternatives: tuple[Alternative, ...] = ()


def advise(
    snapshot: Snapshot,
    request: SessionRequest,
    now: datetime,
    *,
    other_group_ids: Iterable[int] = (),
    look_ahead: int = LOOK_AHEAD,
) -> Advice:
    """Return what the next pass would do with `request`, and otherwise the estimate of its start.

    `other_group_ids` are the groups that the user may use instead; `snapshot` holds their hosts, running and waiting
    sessions.
    """
    ranks = {queued.id: rank for rank, queued in enumerate((*snapshot.queue, request))}
    state = IncrementalState(snapshot, ranks)
    return advise_on(state, request, now, other_group_ids=other_group_ids, look_ahead=look_ahead)


def advise_on(
    state: IncrementalState,
    request: SessionRequest,
    now: datetime,
    *,
    other_group_ids: Iterable[int] = (),
    look_ahead: int = LOOK_AHEAD,
) -> Advice:
    """As `advise`, on a state, which is consumed."""
    state.add(request)
    if any(placement.session_id == request.id for placement in state.serve(now)):
        return Advice(starts="now")
    cluster = state.cluster
    explanation = Explainer(cluster).explain(request)
    smaller = _smaller_request(cluster, request)
    copies = [request._replace(id=f"{request.id} in {group_id}", group_id=group_id) for group_id in other_group_ids]
    elsewhere = [copy for copy in copies if cluster.could_start(copy)]
    later = [copy for copy in copies if copy not in elsewhere]
    starts = state.forecast(now, look_ahead, later)
    own = starts.get(request.id)
    sooner = [
        Alternative(copy.group_id, copy.fgpu_milli, starts[copy.id].at)
        for copy in later
        if copy.id in starts and (own is None or starts[copy.id].at < own.at)
    ]
    return Advice(
        starts=own.at if own else None,
        reason=explanation.detail,
        eta_reason=own.eta_reason if own else "",
        alternatives=(*smaller, *(Alternative(copy.group_id, copy.fgpu_milli, "now") for copy in elsewhere), *sooner),
    )


def _smaller_request(cluster: ClusterState, request: SessionRequest) -> list[Alternative]:
    """Return the largest fGPU below the request that starts now in its group, after all waiting requests are served."""
    group = cluster.groups.get(request.group_id)
    if group is None:
        return []
    if group.head is not None and group.head.id == request.id:
        group.clear_head()
    offered = max(
        (
            host.max_request_milli
            for host in group.capacity.hosts
            if host.cpu >= request.cpu
            and host.memory_bytes >= request.memory_bytes
            and not host.is_reserved
            and host.traits.issuperset(request.traits)
        ),
        default=0,
    )
    limits = cluster.limits_of(request.owner_id, request.project_id)
    allowed = min((remaining.fgpu_milli for remaining in limits), default=offered)
    most = int(min(request.fgpu_milli - FGPU_STEP, offered, allowed)) // FGPU_STEP * FGPU_STEP
    smaller = request._replace(fgpu_milli=most)
    return [Alternative(request.group_id, most, "now")] if most > 0 and cluster.could_start(smaller) else []
