"""Scheduler state of a process: what it has read and decided, so that a pass reads and evaluates changes only.

`apply_changes` brings it up to date, `serve` is the pass, and `update_wait_statuses` explains the rest. A state whose
decisions were not written, as when a pass fails, must be dropped.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from accounts.limits import PolicyLimits
from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.preemption import Preemption
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.queue.remaining_limits import RemainingLimits
from scheduler.core.types import ClassKey, LimitHolder, Placement, RunningSession, SessionRequest, entries_in
from scheduler.core.waiting.explanation import Explainer
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.snapshot.claims import Claims, entries_of_claim, hold_ids, holds_of, is_over_limit, status_of, warned
from scheduler.snapshot.fair_use import has_fair_group
from scheduler.snapshot.limit_holders import NOTHING, project_usage_of, usage_of
from scheduler.snapshot.queue import FullState, OwnWrite, StateChanges, WaitingSession
from scheduler.state.elastic_members import ElasticMembers
from scheduler.state.explanations import Explanations
from scheduler.state.likely_starts import LikelyStarts
from scheduler.state.preemption_search import PreemptionSearch
from scheduler.state.wait_status import as_stored, needs_update
from sessions.lifecycle import Reason
from sessions.models import STOP_DURATION, WaitStatus
from sessions.models.group_waits import NOT_TRIED
from sessions.requeueing.preemption import StoredClaim

MAX_CONSIDERED: Final = 100  # waiting sessions, the first of the queue, for which others may end in a pass
WAITS_FOR_CAPACITY: Final = (Reason.NO_CAPACITY, Reason.RESERVED)


class SchedulerState:
    """Waiting and running sessions with the wait statuses written, as read and decided so far."""

    def __init__(self, loaded: FullState) -> None:
        """Begin with the whole state."""
        self.since = loaded.since
        self.offered = loaded.offered
        self.is_fair = has_fair_group(loaded.snapshot.rules)
        self.likely = LikelyStarts(loaded.past, loaded.calibrations)
        queue = tuple(map(self.likely.past.predicted, loaded.snapshot.queue))
        self.incremental = IncrementalState(replace(loaded.snapshot, queue=queue))
        self.waiting = {session.request.id: session for session in loaded.waiting if session.request.beside is None}
        self.elastic = ElasticMembers(loaded.waiting, loaded.snapshot.running)  # apart from all others that wait
        self._preemptions = PreemptionSearch()
        self.own_writes: list[OwnWrite] = []  # of wait statuses as this state has them
        self.unconfirmed: set[str] = set()  # placed here and not read since: another process may have been faster
        self._running = {running.session_id: running for running in loaded.snapshot.running}
        self.claims = Claims(loaded.claims, loaded.snapshot.running)
        self.lapsed: set[str] = set()  # waiting sessions that have lost their claim in the last pass
        self.told_elsewhere: list[str] = []  # started by the last pass; the group that they prefer says when they start
        self._blocked = set(self.waiting).difference(self.incremental.requests)  # by a dependency or a start time
        queued = self.incremental.requests
        self._explanations = Explanations(
            queued.values(), [name for name in queued if self.waiting[name].status.reason in NOT_TRIED]
        )

    @property
    def size(self) -> int:
        """Number of sessions, waiting or running."""
        return len(self.waiting) + len(self._running)

    def apply_changes(self, changes: StateChanges, now: datetime) -> None:
        """Apply what has changed since `since`; changes that are known already may be among it."""
        self.since = changes.since
        self.own_writes = [write for write in self.own_writes if write.xid >= int(changes.since)]
        self.unconfirmed.clear()
        waiting = {session.request.id: session for session in changes.waiting if session.request.beside is None}
        self.elastic.replace_waiting(changes.ids, changes.waiting)
        for session_id in changes.ids:
            session, was = waiting.get(session_id), self.waiting.get(session_id)
            is_same = self.claims.get(session_id) == changes.claims.get(session_id)
            if session is not None and was is not None and session[:-1] == was[:-1] and is_same:
                self._apply_status(session, was.status)
                del waiting[session_id]
            else:
                self._remove_waiting(session_id)
        here = {running.session_id: running for running in changes.running}
        gone = [self._running[name] for name in changes.ids if name in self._running and name not in self.claims]
        same = {running.session_id for running in gone if here.get(running.session_id) == running}
        self.likely.note_ends((running for running in gone if running.session_id not in here), now)
        self._replace_running(
            [running for running in gone if running.session_id not in same],
            [running for name, running in here.items() if name not in same],
        )
        self.incremental.cluster.set_used(changes.used)
        self.add_limits(changes.limits, changes.project_limits)
        for session_id, session in waiting.items():
            self.waiting[session_id] = session
            self._blocked.add(session_id)
            if session_id in changes.claims:
                self._take_hold(session.request, changes.claims[session_id])

    def add_limits(
        self, limits: Mapping[int, PolicyLimits], project_limits: Mapping[int, PolicyLimits] = MappingProxyType({})
    ) -> None:
        """Add the limits of users and of projects, by id, that are not known yet."""
        known = self.incremental.cluster.limits
        if new := limits.keys() - known.users.keys():
            usage = usage_of(self._running.values())
            for owner_id in new:
                holder = LimitHolder(limits=limits[owner_id], used=usage.get(owner_id, NOTHING))
                known.users[owner_id] = RemainingLimits(holder)
        if new := project_limits.keys() - known.projects.keys():
            usage = project_usage_of(self._running.values())
            for project_id in new:
                holder = LimitHolder(limits=project_limits[project_id], used=usage.get(project_id, NOTHING))
                known.projects[project_id] = RemainingLimits(holder)

    def enqueue_due(self, now: datetime) -> None:
        """Add to the queue the sessions whose dependencies are met and whose start time has come."""
        for session_id in [name for name in self._blocked if self._blocked_status(name, now) is None]:
            self._blocked.remove(session_id)
            request = self.waiting[session_id].request
            self.incremental.add(self.likely.past.predicted(request))
            self._explanations.add(request)
            self._explanations.request_for(session_id)

    def serve(self, now: datetime, grace_of: Callable[[], timedelta] | None = None) -> list[Placement]:
        """Place all sessions that can start, by the state as it is known; return their placements.

        With `grace_of`, the time between warning and end, a preemptible session that would end at once for another one
        that waits is not placed.
        """
        self.lapsed, self.told_elsewhere = set(), []
        self._preemptions.begin_pass()
        claimed = self._serve_claims(now) if self.claims else []
        self.enqueue_due(now)
        placements = self.incremental.serve(now)
        more = (
            self.elastic.start(self.incremental.cluster, self._explanations.by_holders, now)
            if grace_of is not None
            else []
        )
        mains = [placement for placement in placements if placement.session_id in self.waiting]
        lesser = {
            member_id
            for main in mains
            if (request := self.waiting[main.session_id].request).is_preemptible
            for member_id in request.member_ids or (request.id,)
        }
        doubtful = {one.session_id: one for one in placements if one.session_id in lesser}
        doubtful |= {one.session_id: one for one in more}
        if doubtful and grace_of is not None and (futile := self._futile(doubtful, now, grace_of())):
            placements, more = self._put_off(placements, futile), self._put_off(more, futile)
        for placement in (*placements, *more):
            self.elastic.waiting.pop(placement.session_id, None)
            if placement.session_id in self.waiting:  # not so members of a cluster but the main one
                request = self.waiting.pop(placement.session_id).request
                if request.is_alternative:
                    self.told_elsewhere.append(request.id)
                self._explanations.remove(request)
                self._explanations.note_usage([request])
            self._running[placement.session_id] = self._placed(placement)
            self.unconfirmed.add(placement.session_id)
        return claimed + placements + more

    def _futile(self, placed: Mapping[str, Placement], now: datetime, grace: timedelta) -> set[str]:
        """Return those placed who would at once be warned, as others that wait fit once they and some more end."""
        young = [self._placed(placement)._replace(is_preemptible=True) for placement in placed.values()]
        elastic = Candidates((*self.claims.elastic.sessions(), *(one for one in young if one.is_elastic)))
        candidates = Candidates((*self.claims.candidates.sessions(), *young))
        found: set[str] = set()
        for group_id in {self.incremental.cluster.group_of[placement.host_id] for placement in placed.values()}:
            group = self.incremental.cluster.groups[group_id]
            for request in self.incremental.in_order(group_id, now, MAX_CONSIDERED):
                is_known = self.waiting[request.id].status.reason in WAITS_FOR_CAPACITY
                if not is_known or self._needs_preemption(request, now + grace + STOP_DURATION):
                    decision = self._preemptions.find(group, request, (elastic, candidates), now)
                    found.update(() if decision is None else decision.victim_ids)
        return found & placed.keys()

    def elastic_over_limits(self) -> list[str]:
        """Return the ids of elastic members that end, as limits would allow a session that waits without them."""
        return self.elastic.over_limits(self.incremental.cluster.limits, self._explanations.by_holders, self.waiting)

    def _put_off(self, placements: Sequence[Placement], session_ids: Collection[str]) -> list[Placement]:
        """Return the placements without those of some sessions, which wait on; clusters are there as a whole."""
        undone = [placement for placement in placements if placement.session_id in session_ids]
        self.incremental.update([self._placed(placement) for placement in undone], ())
        for placement in undone:
            if placement.session_id in self.waiting:  # not so members of a cluster but the main one
                self.incremental.add(self.likely.past.predicted(self.waiting[placement.session_id].request))
        return [placement for placement in placements if placement.session_id not in session_ids]

    def _placed(self, placement: Placement) -> RunningSession:
        """Return the session that the last pass has placed."""
        group_id = self.incremental.cluster.group_of[placement.host_id]  # of the request or an alternative
        return self.incremental.cluster.groups[group_id].running[placement.session_id]

    def find_preemption(self, group_id: int, now: datetime, starts_at: datetime) -> Preemption | None:
        """Return which sessions of a group should end for one that waits and could start by them at `starts_at`.

        Those that wait are looked at in order: who may be ended for others is passed over, and who will start as soon
        anyway. None if nobody is helped. `accept` what is stored of it, then ask again.
        """
        group = self.incremental.cluster.groups.get(group_id)
        candidates = self.claims.candidates
        if group is None or candidates.may_end.keys().isdisjoint(group.host_capacities):
            return None
        hopeless: set[ClassKey] = set()
        for request in self.incremental.in_order(group_id, now, MAX_CONSIDERED):
            if request.class_key in hopeless or not self._needs_preemption(request, starts_at):
                continue
            found = self._preemptions.find(group, request, (self.claims.elastic, candidates), now)
            if found is not None:
                return found
            hopeless.add(request.class_key)
        return None

    def accept(self, found: Preemption, claim: StoredClaim) -> None:
        """Take what `find_preemption` has returned as decided, and stored as `claim`."""
        request = self.waiting[found.session_id].request
        self.incremental.remove(request.id)
        self._explanations.remove(request)
        self._blocked.add(request.id)
        self._take_hold(request, claim)
        victims = [self._running[victim_id] for victim_id in found.victim_ids]
        self._replace_running(victims, [warned(victim, request.id, claim.at) for victim in victims])

    def _needs_preemption(self, request: SessionRequest, starts_at: datetime) -> bool:
        """Return whether a waiting request is held up by what others hold, for longer than until `starts_at`."""
        cluster, first = self.incremental.cluster, self.waiting[request.id].request
        if first.is_alternative or request.group_id != first.group_id:
            return False  # others end for it in the group that it prefers
        if request.is_preemptible or cluster.limits.are_exceeded_by(request):
            return False
        group, status = cluster.groups[request.group_id], self.waiting[request.id].status
        if group.head is not None and group.head.id == request.id:
            start = group.reservation.at if group.reservation is not None else None
        elif status.reason in WAITS_FOR_CAPACITY:
            start = status.eta
        else:
            return False  # not explained yet: the next pass looks at it
        return start is None or start > starts_at

    def _serve_claims(self, now: datetime) -> list[Placement]:
        """Start the sessions with a claim that fit by now, there or elsewhere; drop claims that came to nothing.

        In the same steps whether the state was read just now or not: nothing is left from the last pass, and what a
        claim takes elsewhere leaves to the head of the queue what is reserved for it.
        """
        self.enqueue_due(now)
        self.incremental.begin_pass()
        placements: list[Placement] = []
        claims, cluster = self.claims.in_order(), self.incremental.cluster
        for position, (session_id, claim) in enumerate(claims, 1):
            request, holds = self.waiting[session_id].request, self._holds(session_id, claim)
            later = [hold for other in claims[position:] for hold in self._holds(*other)]
            claiming = self._claiming(request, claim)
            is_lost = is_over_limit(cluster, holds[0]) or claim.members != request.members
            if claiming is not None and not is_lost and all(cluster.covers(hold, later) for hold in holds):
                self._drop_hold(session_id)
                placed = cluster.start_at(claiming, claim.placed, now)
                self._note_placed(request, placed)
                placements += placed
            elif not is_lost and (placed := self._place_elsewhere(request, claim, now)):
                placements += placed
            elif is_lost or claiming is None or not self.claims.victims_of(session_id):
                self._drop_hold(session_id)
                self.lapsed.add(session_id)
                self.unconfirmed.add(session_id)
        return placements

    def _claiming(self, request: SessionRequest, claim: StoredClaim) -> SessionRequest | None:
        """Return the entry of a request that its claim is of; None where its hosts could not hold it any more."""
        cluster, members = self.incremental.cluster, list(enumerate(claim.placed))
        return next(
            (
                entry
                for entry in entries_of_claim(request, claim)
                if all(cluster.could_hold(placed, entry.shape, with_main=not at) for at, placed in members)
            ),
            None,
        )

    def _place_elsewhere(self, request: SessionRequest, claim: StoredClaim, now: datetime) -> tuple[Placement, ...]:
        """Start a session with a claim where it fits already, if that does not delay the head of the queue."""
        group = self.incremental.cluster.groups.get(claim.group_id)
        entries = entries_in(claim.group_id, request)
        entry = next((entry for entry in entries if group is not None and group.may_place(entry)), None)
        if entry is None:
            return ()
        self.incremental.reserve(claim.group_id, now)
        self._drop_hold(request.id)
        placements = self.incremental.cluster.place(entry, now)
        if placements:
            self._note_placed(request, placements)
        else:
            self._take_hold(request, claim)
        return placements

    def _note_placed(self, request: SessionRequest, placements: Sequence[Placement]) -> None:
        """Note that a session with a claim, with all its members, has been placed."""
        self._blocked.remove(request.id)
        del self.waiting[request.id]
        self._explanations.note_usage([request])
        for placement in placements:
            self._running[placement.session_id] = self._placed(placement)
            self.unconfirmed.add(placement.session_id)

    def _take_hold(self, request: SessionRequest, claim: StoredClaim) -> None:
        """Have a waiting session hold in advance what it claims."""
        self.claims.add(request.id, claim)
        self._replace_running((), holds_of(request, claim, self.incremental.rules_of(claim.group_id)))

    def _drop_hold(self, session_id: str) -> None:
        """Drop the claim of a waiting session, and what it holds in advance."""
        holds = self._holds(session_id, self.claims.remove(session_id))
        self._replace_running(holds, ())

    def _holds(self, session_id: str, claim: StoredClaim) -> list[RunningSession]:
        """Return what a waiting session holds in advance."""
        return [self._running[hold_id] for hold_id in hold_ids(session_id, claim)]

    def _blocked_status(self, session_id: str, now: datetime) -> WaitStatus | None:
        """Return the wait status of a session that is not in the queue; None once it belongs there."""
        claim = self.claims.get(session_id)
        return self.waiting[session_id].blocked_status(now) if claim is None else status_of(session_id, claim)

    def placed(self, session_id: str) -> RunningSession:
        """Return a session that runs or was placed, by the state as it is known."""
        return self._running[session_id]

    def update_wait_statuses(self, now: datetime, starts: Mapping[str, StartEstimate] | None) -> list[WaitStatus]:
        """Return the wait statuses that say something new, to be written; from now on they count as written.

        `starts` are new estimates, perhaps of a state before this; None: those that are written stand. Looks at no more
        than `explanations.MAX_EXPLAINED` sessions, so that no start waits for the texts of a long queue: while
        `is_behind`, ask again.
        """
        cluster, queued = self.incremental.cluster, self.incremental.requests
        if starts is not None:
            had_one = {name for name in queued if self.waiting[name].status.eta is not None}
            self._explanations.note_starts(starts, queued.keys() & (starts.keys() | had_one))
        found = self._explanations.take(Explainer(cluster), cluster.limits, self.waiting)
        for session_id in self._blocked:
            blocked = self._blocked_status(session_id, now)
            if blocked is not None:
                found.append(blocked)
        new = [as_stored(status) for status in found if needs_update(self.waiting[status[0]].status, status, now)]
        for status in new:
            self.waiting[status.session_id] = self.waiting[status.session_id]._replace(status=status)
        return new

    @property
    def is_behind(self) -> bool:
        """Whether sessions are left to be explained, or have a new estimate."""
        return self._explanations.is_behind

    def _apply_status(self, session: WaitingSession, known: WaitStatus) -> None:
        """Store a wait status as this process or another has written it."""
        if session.status != known:
            self.waiting[session.request.id] = session
            if session.request.id in self.incremental.requests:
                self._explanations.request_for(session.request.id)

    def _remove_waiting(self, session_id: str) -> None:
        session = self.waiting.pop(session_id, None)
        if session is None:
            return
        self.likely.forget(session.request)
        if session_id in self.claims:
            self._drop_hold(session_id)
        if session_id in self._blocked:
            self._blocked.remove(session_id)
        else:
            self.incremental.remove(session_id)
            self._explanations.remove(session.request)

    def _replace_running(self, gone: Sequence[RunningSession], here: Sequence[RunningSession]) -> None:
        """Remove the running sessions that ended or changed, and add those that started or changed."""
        for running in gone:
            del self._running[running.session_id]
        self._running.update((running.session_id, running) for running in here)
        self.claims.note(gone, here)
        self.elastic.note(gone, here)
        self._explanations.note_usage((*gone, *here))
        self.incremental.update(gone, here)
