"""What would become of a session if it were asked for now: when it starts, why then, what starts sooner. Pure.

The same board, order and rules as a pass, so the answer is what the next pass does if nothing changes before it.
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

LOOK_AHEAD: Final = 30  # moments at which sessions end: what an answer may cost while a slider moves

Starts = datetime | Literal["now"] | None  # None: nobody can say


class Alternative(NamedTuple):
    """A request that starts sooner: so much milli-fGPU in that group."""

    group_id: int
    fgpu: int
    starts: Starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """When the request starts, why not at once, why then, and what would start sooner, the least change first."""

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
    """Return what the next pass would do with `request`, and else what is known of its start.

    `other_group_ids` are those that the user may use instead; `snapshot` holds their hosts, running and waiting
    sessions.
    """
    state = IncrementalState(snapshot, {one.id: rank for rank, one in enumerate((*snapshot.queue, request))})
    return advise_on(state, request, now, other_group_ids=other_group_ids, look_ahead=look_ahead)


def advise_on(
    state: IncrementalState,
    request: SessionRequest,
    now: datetime,
    *,
    other_group_ids: Iterable[int] = (),
    look_ahead: int = LOOK_AHEAD,
) -> Advice:
    """As `advise`, on a state that is spent."""
    state.add(request)
    if any(placement.session_id == request.id for placement in state.serve(now)):
        return Advice(starts="now")
    cluster = state.cluster
    explanation = Explainer(cluster).explain(request)
    less = _less(cluster, request)
    hypothetical = [
        request._replace(id=f"{request.id} in {group_id}", group_id=group_id) for group_id in other_group_ids
    ]
    elsewhere = [candidate for candidate in hypothetical if cluster.could_start(candidate)]
    later = [candidate for candidate in hypothetical if candidate not in elsewhere]
    starts = state.play(now, look_ahead, later)
    own = starts.get(request.id)
    sooner = [
        Alternative(candidate.group_id, candidate.fgpu, starts[candidate.id].at)
        for candidate in later
        if candidate.id in starts and (own is None or starts[candidate.id].at < own.at)
    ]
    return Advice(
        starts=own.at if own else None,
        reason=explanation.detail,
        eta_reason=own.eta_reason if own else "",
        alternatives=(
            *less,
            *(Alternative(candidate.group_id, candidate.fgpu, "now") for candidate in elsewhere),
            *sooner,
        ),
    )


def _less(cluster: ClusterState, request: SessionRequest) -> list[Alternative]:
    """Return the most fGPU below the request that starts now in its group: what is left when all others are served."""
    group = cluster.groups.get(request.group_id)
    if group is None:
        return []
    if group.head is not None and group.head.id == request.id:
        group.clear_head()
    hosts = [host for host in group.capacity.hosts if host.cpu >= request.cpu and host.memory >= request.memory]
    offered = max((host.fgpu for host in hosts if not host.is_reserved), default=0)
    allowed = min((holder.fgpu for holder in cluster.limits_of(request.owner_id, request.project_id)), default=offered)
    most = int(min(request.fgpu - FGPU_STEP, offered, allowed)) // FGPU_STEP * FGPU_STEP
    smaller = request._replace(fgpu=most)
    return [Alternative(request.group_id, most, "now")] if most > 0 and cluster.could_start(smaller) else []
