"""Preemption: which running sessions end for a request that waits, as few and as young as possible. Pure.

A request whose turn it is takes what it will hold at once, as if it ran there: free amounts go below zero until the
sessions in its way have ended, so that nobody else is placed on what becomes free. Nothing is ended for nothing: the
request fits exactly once its victims have ended.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.placement_policy import split_of
from scheduler.core.cluster.candidates import MAX_VICTIMS, Bound, Candidates
from scheduler.core.cluster.group_state import GroupState
from scheduler.core.cluster.member_preemption import find_for_members
from scheduler.core.types import Placed, RunningSession, SessionRequest
from scheduler.core.victims import without


class Preemption(NamedTuple):
    """Decision that sessions end for a request, which then is placed so."""

    session_id: str
    placed: tuple[Placed, ...]
    victim_ids: tuple[str, ...]


def find_preemption(
    group: GroupState, request: SessionRequest, candidates: Candidates, now: datetime
) -> Preemption | None:
    """Return the preemption by which `request` starts soonest; None if no host has enough to end, or one needs none.

    It takes the host where the fewest end, then where the least work is lost; one that failed the request before only
    if there is no other. The hosts that are reserved for the head are left to the head.
    """
    is_head = group.head is not None and group.head.id == request.id
    able = [host for host in group.capacity.hosts if candidates.has_any(host) and (is_head or not host.is_reserved)]
    if request.shape.spans_hosts:
        found = find_for_members(group, request, candidates, able, now)
        return found and Preemption(request.id, found[0], tuple(victim.session_id for victim in found[1]))
    hosts = sorted((candidates.bound(host, request, now), host.index, host) for host in able)
    best: tuple[tuple[Bound, int], Sequence[RunningSession]] | None = None
    for bound, index, host in hosts:
        if best is not None and (bound, index) >= best[0]:
            break
        is_compared = best is not None and best[0][0].is_avoided == bound.is_avoided
        at_most = best[0][0].sessions if best is not None and is_compared else MAX_VICTIMS
        victims = candidates.victims_on(host, request.shape, at_most)
        if victims is not None and not victims:
            return None  # it starts once those have ended
        if victims is not None:
            lost = sum((now - victim.started_at for victim in victims), timedelta())
            rank = Bound(True, bound.is_avoided, len(victims), lost), index
            best = min(best, (rank, victims)) if best is not None else (rank, victims)
    if best is None:
        return None
    return _preemption(group, request, candidates.settled(group.capacity.hosts[best[0][1]]), best[1])


def _preemption(
    group: GroupState, request: SessionRequest, host: HostCapacity, victims: Sequence[RunningSession]
) -> Preemption:
    shape, later = request.shape, without(host, victims)
    split = split_of(group.capacity.policy, later, shape)
    victim_ids = tuple(victim.session_id for victim in victims)
    return Preemption(request.id, ((request.members, later.host_id, later.take(shape, split)),), victim_ids)
