"""Claims: what waiting sessions will hold once the preemptible sessions in their way have ended.

A claim is stored in the row of the session that waits, and in those of its victims. In the scheduler's state it is a
running session, so that nobody else is placed on what becomes free. Each pass serves the claims first: one that fits by
now starts, and so does one that fits elsewhere; victims that are not needed any more are spared.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import Preemption
from scheduler.core.types import Rules, RunningSession, SessionRequest, entries_in, latest_end, member_placements
from sessions.lifecycle import Reason
from sessions.models import STOP_DURATION, WaitStatus
from sessions.requeueing.preemption import StoredClaim

CLAIM_TEXT: Final = "Preemptible sessions end for it after their warning."
CLAIM_ETA_REASON: Final = "by then the preemptible sessions in its way have ended"


def start_of(claim: StoredClaim) -> datetime:
    """Return the latest start of a session with a claim: its victims have stopped by then."""
    return claim.at + STOP_DURATION


def hold_ids(session_id: str, claim: StoredClaim) -> tuple[str, ...]:
    """Return the ids under which a claim holds in advance what it says; those behind the first are of no session."""
    return session_id, *(f"{session_id}/{rank}" for rank in range(1, claim.members))


def entries_of_claim(request: SessionRequest, claim: StoredClaim) -> list[SessionRequest]:
    """Return the entries of a request of which a claim may be, alike but for traits: by GPU memory, of equal shares."""
    milli = sum(share for _, _, shares in claim.placed for _, share in shares)
    entries = entries_in(claim.group_id, request)
    return [it for it in entries if it.fgpu_milli * claim.members == milli * it.members] or [request]


def holds_of(request: SessionRequest, claim: StoredClaim, rules: Rules) -> list[RunningSession]:
    """Return the sessions that hold in advance what the claim says, one a member, until when those that start will."""
    request = entries_of_claim(request, claim)[0]
    more, (cpu, memory_bytes, fgpu_milli) = claim.members - request.members, request.each  # its size may have changed
    members = request._replace(
        members=claim.members,
        cpu=request.cpu + more * cpu,
        memory_bytes=request.memory_bytes + more * memory_bytes,
        fgpu_milli=request.fgpu_milli + more * fgpu_milli,
        member_ids=hold_ids(request.id, claim),
    )
    return [
        RunningSession(
            session_id=placement.session_id,
            owner_id=request.owner_id,
            host_id=placement.host_id,
            cpu=members.amounts_of(placement.session_id)[0],
            memory_bytes=members.amounts_of(placement.session_id)[1],
            shares=placement.shares,
            started_at=claim.at,
            ends_at=latest_end(request, start_of(claim), rules),
            project_id=request.project_id,
            charge_percent=request.charge_percent,
            core_milli=request.core_milli,
        )
        for placement in member_placements(members, claim.placed)
    ]


def warned(victim: RunningSession, session_id: str, at: datetime) -> RunningSession:
    """Return a running session as it is once it has been warned that it ends at `at` for another."""
    end = at + STOP_DURATION if victim.ends_at is None else min(victim.ends_at, at + STOP_DURATION)
    return victim._replace(is_preemptible=False, preempted_for=session_id, ends_at=end)


def status_of(session_id: str, claim: StoredClaim) -> WaitStatus:
    """Return the wait status of a session with a claim."""
    return WaitStatus(session_id, Reason.PREEMPTION.value, CLAIM_TEXT, start_of(claim), CLAIM_ETA_REASON)


def is_over_limit(cluster: ClusterState, hold: RunningSession) -> bool:
    """Return whether a limit forbids what is held by now, as limits may have been lowered."""
    limits = cluster.limits.of(hold.owner_id, hold.project_id)
    return any(min(left.cpu, left.memory_bytes, left.fgpu_milli, left.sessions) < 0 for left in limits)


class Claims:
    """Claims of waiting sessions, and the running sessions that may end for others or will."""

    def __init__(self, stored: Mapping[str, StoredClaim], running: Iterable[RunningSession]) -> None:
        """Take the claims by the ids of the sessions that wait, and all running sessions, their holds included."""
        self._stored = dict(stored)
        self.candidates = Candidates(())
        self.elastic = Candidates(())  # those of them that end before others
        self._victims: dict[str, dict[str, RunningSession]] = {}  # by the id of the session for which they end
        self.note((), running)

    def __bool__(self) -> bool:
        return bool(self._stored)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._stored

    def get(self, session_id: str) -> StoredClaim | None:
        """Return the claim of a waiting session, if it has one."""
        return self._stored.get(session_id)

    def add(self, session_id: str, claim: StoredClaim) -> None:
        """Add the claim of a waiting session."""
        self._stored[session_id] = claim

    def remove(self, session_id: str) -> StoredClaim:
        """Forget a claim, and return it."""
        return self._stored.pop(session_id)

    def in_order(self) -> list[tuple[str, StoredClaim]]:
        """Return the claims with the ids of their sessions, the oldest first."""
        return sorted(self._stored.items(), key=lambda item: (item[1].at, item[0]))

    def note(self, gone: Iterable[RunningSession], here: Iterable[RunningSession]) -> None:
        """Note running sessions that ended or changed, and those that started or changed."""
        for session in gone:
            for candidates in (self.elastic, self.candidates):
                candidates.remove(session)
            self._victims.get(session.preempted_for, {}).pop(session.session_id, None)
        for session in here:
            self.candidates.add(session)
            if session.is_elastic or session.preempted_for:
                self.elastic.add(session)
            if session.preempted_for:
                self._victims.setdefault(session.preempted_for, {})[session.session_id] = session

    def victims_of(self, session_id: str) -> list[str]:
        """Return the ids of the sessions that end for a waiting one."""
        return sorted(self._victims.get(session_id, ()))

    def spared(self, host_ids: Iterable[int]) -> list[str]:
        """Return the ids of warned sessions on these hosts for whose end there is no reason any more."""
        known = {*host_ids}
        return sorted(
            victim.session_id
            for session_id, victims in self._victims.items()
            if session_id not in self._stored
            for victim in victims.values()
            if victim.host_id in known
        )

    def due(self, now: datetime) -> Iterator[str]:
        """Yield the ids of the sessions whose warning is over."""
        for session_id, claim in self.in_order():
            if claim.at <= now:
                yield from self.victims_of(session_id)


def claim_from(found: Preemption, group_id: int, now: datetime, grace: timedelta) -> StoredClaim:
    """Return what to store of a preemption that is decided now."""
    return StoredClaim(group_id=group_id, placed=found.placed, at=now + grace)
