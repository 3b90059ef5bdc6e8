"""Preemption: which running sessions end for a request that waits, as few and as young as possible. Pure.

A request whose turn it is takes what it will hold at once, as if it ran there: free amounts go below zero until the
sessions in its way have ended, so that nobody else is placed on what becomes free. Nothing is ended for nothing: the
request fits exactly once its victims have ended.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from scheduler.core.group_state import GroupState
from scheduler.core.host_capacity import HostCapacity
from scheduler.core.types import RunningSession, SessionRequest, Shares
from scheduler.core.victims import fewest_victims, without


class Preemption(NamedTuple):
    """Decision that sessions on a host end for a request, which then gets these shares there."""

    session_id: str
    host_id: int
    shares: Shares
    victim_ids: tuple[str, ...]


class Candidates:
    """Sessions of a cluster that may end for others, and those that will, by host id."""

    def __init__(self, running: Iterable[RunningSession]) -> None:
        """Take the running sessions of which these are."""
        self.may_end: dict[int, list[RunningSession]] = {}  # the youngest first
        self.ending: dict[int, list[RunningSession]] = {}
        for session in running:
            if session.is_preemptible:
                self.may_end.setdefault(session.host_id, []).append(session)
            elif session.preempted_for:
                self.ending.setdefault(session.host_id, []).append(session)
        for sessions in self.may_end.values():
            sessions.sort(key=lambda session: (session.started_at, session.session_id), reverse=True)

    def settled(self, host: HostCapacity) -> HostCapacity:
        """Return a host as it is once the sessions that end for others have ended."""
        return without(host, self.ending.get(host.host_id, ()))


def find_preemption(
    group: GroupState, request: SessionRequest, candidates: Candidates, now: datetime
) -> Preemption | None:
    """Return the preemption by which `request` starts soonest; None if no host has enough to end, or one needs none.

    It takes the host where the fewest end, then where the least work is lost; one that failed the request before only
    if there is no other. The host that is reserved for the head is left to the head.
    """
    is_head = group.head is not None and group.head.id == request.id
    best: tuple[tuple[bool, int, timedelta, int], Sequence[RunningSession]] | None = None
    for host in group.capacity.hosts:
        sessions = candidates.may_end.get(host.host_id, ())
        if (host.is_reserved and not is_head) or not (sessions or host.host_id in candidates.ending):
            continue
        later = candidates.settled(host)
        if later.fits(request.shape):
            return None  # it starts once those have ended
        is_avoided = host.host_id in request.avoided_host_ids
        at_most = len(sessions) if best is None or best[0][0] > is_avoided else best[0][1]
        if best is not None and best[0][0] < is_avoided:
            continue
        victims = fewest_victims(later, sessions, request.shape, at_most)
        if victims is not None:
            lost = sum((now - victim.started_at for victim in victims), timedelta())
            rank = (is_avoided, len(victims), lost, host.index)
            best = min(best, (rank, victims)) if best is not None else (rank, victims)
    if best is None:
        return None
    return _preemption(group, request, candidates.settled(group.capacity.hosts[best[0][-1]]), best[1])


def _preemption(
    group: GroupState, request: SessionRequest, host: HostCapacity, victims: Sequence[RunningSession]
) -> Preemption:
    shape, later = request.shape, without(host, victims)
    part = shape.fgpu_milli % later.gpu_capacity if shape.fgpu_milli else 0
    split = later.split(shape.fgpu_milli, (group.capacity.policy.device(later, shape, part),) if part else ())
    victim_ids = tuple(victim.session_id for victim in victims)
    return Preemption(request.id, later.host_id, later.take(shape, split), victim_ids)
