"""Scheduler state of a process: what it has read and decided, so that a pass reads and evaluates changes only.

`apply_changes` brings it up to date, `serve` is the pass, and `update_wait_statuses` explains the rest. A state whose
decisions were not written, as when a pass fails, must be dropped.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from accounts.limits import PolicyLimits
from scheduler.core.explanation import Explainer, ReasonText
from scheduler.core.forecast import StartEstimate
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import LimitHolder, Placement, RunningSession, SessionRequest, Shape, Traits
from scheduler.fair_use import has_fair_group
from scheduler.snapshot import NOTHING, FullState, StateChanges, WaitingSession, usage_of
from scheduler.wait_status import as_stored, needs_update
from sessions.models import WaitStatus

GroupShape = tuple[int, Shape]  # requests with equal ones have the same explanation, limits aside
HolderIds = tuple[int, int | None]  # user and project


class SchedulerState:
    """Waiting and running sessions with the wait statuses written, as read and decided so far."""

    def __init__(self, loaded: FullState) -> None:
        """Begin with the whole state."""
        self.since = loaded.since
        self.offered = loaded.offered
        self.is_fair = has_fair_group(loaded.snapshot.rules)
        self.incremental = IncrementalState(loaded.snapshot)
        self.waiting = {session.request.id: session for session in loaded.waiting}
        self.unconfirmed: set[str] = set()  # placed here and not read since: another process may have been faster
        self._running = {running.session_id: running for running in loaded.snapshot.running}
        self._blocked = set(self.waiting).difference(self.incremental.requests)  # by a dependency or a start time
        self._texts: dict[GroupShape, ReasonText | None] = {}  # as of the last explanation
        self._text_inputs: dict[tuple[int, Traits], object] = {}  # what the texts of a group, by traits, derive from
        self._unexplained = set(self.incremental.requests)
        self._with_eta = {name for name, session in self.waiting.items() if session.status.eta is not None}
        self._touched: set[HolderIds] = set()  # holders whose usage has changed since the last explanation
        self._by_group_shape: dict[GroupShape, set[str]] = defaultdict(set)
        self._by_holders: dict[HolderIds, set[str]] = defaultdict(set)
        for request in self.incremental.requests.values():
            self._index(request)

    def apply_changes(self, changes: StateChanges) -> None:
        """Apply what has changed since `since`; changes that are known already may be among it."""
        self.since = changes.since
        self.unconfirmed.clear()
        waiting = {session.request.id: session for session in changes.waiting}
        for session_id in changes.ids:
            session, was = waiting.get(session_id), self.waiting.get(session_id)
            if session is not None and was is not None and session[:4] == was[:4]:
                self._apply_status(session, was.status)
                del waiting[session_id]
            else:
                self._remove_waiting(session_id)
        here = {running.session_id: running for running in changes.running}
        gone = [self._running[name] for name in changes.ids if name in self._running]
        same = {running.session_id for running in gone if here.get(running.session_id) == running}
        self._replace_running(
            [running for running in gone if running.session_id not in same],
            [running for name, running in here.items() if name not in same],
        )
        self.incremental.cluster.set_used(changes.used)
        self.add_limits(changes.limits)
        for session_id, session in waiting.items():
            self._store(session)
            self._blocked.add(session_id)

    def add_limits(self, limits: Mapping[int, PolicyLimits]) -> None:
        """Add the limits of users, by id, that are not known yet."""
        usage = None
        for owner_id, policy_limits in limits.items():
            if not self.incremental.cluster.knows_holder(owner_id):
                usage = usage_of(self._running.values()) if usage is None else usage
                holder = LimitHolder(limits=policy_limits, used=usage.get(owner_id, NOTHING))
                self.incremental.cluster.add_holder(owner_id, holder)

    def enqueue_due(self, now: datetime) -> None:
        """Add to the queue the sessions whose dependencies have succeeded and whose start time has come."""
        for session_id in [name for name in self._blocked if self.waiting[name].blocked_status(now) is None]:
            self._blocked.remove(session_id)
            request = self.waiting[session_id].request
            self.incremental.add(request)
            self._index(request)
            self._unexplained.add(session_id)

    def serve(self, now: datetime) -> list[Placement]:
        """Place all sessions that can start, by the state as it is known; return their placements."""
        self.enqueue_due(now)
        placements = self.incremental.serve(now)
        for placement in placements:
            request = self.waiting.pop(placement.session_id).request
            self._remove_from_indexes(request)
            self._touched.add((request.owner_id, request.project_id))
            self._running[request.id] = self.incremental.cluster.groups[request.group_id].running[request.id]
            self.unconfirmed.add(request.id)
        return placements

    def placed(self, session_id: str) -> RunningSession:
        """Return a session that runs or was placed, by the state as it is known."""
        return self._running[session_id]

    def update_wait_statuses(self, now: datetime, starts: Mapping[str, StartEstimate] | None) -> list[WaitStatus]:
        """Return the wait statuses that say something new, to be written; from now on they count as written.

        `starts` are new estimates, perhaps of a state before this; None: those that are written stand.
        """
        explainer = Explainer(self.incremental.cluster)
        outdated = self._outdated(explainer)
        if starts is not None:
            outdated.update(self.incremental.requests.keys() & (starts.keys() | self._with_eta))
        found = []
        for session_id in outdated:
            session = self.waiting[session_id]
            reason, detail = explainer.explain(session.request)[1:3]
            if starts is None:
                found.append(session.status._replace(reason=reason.value, detail=detail))
            else:
                found.append(_status_of(session_id, reason.value, detail, starts.get(session_id)))
        for session_id in self._blocked:
            blocked = self.waiting[session_id].blocked_status(now)
            if blocked is not None:
                found.append(blocked)
        new = [as_stored(status) for status in found if needs_update(self.waiting[status[0]].status, status, now)]
        for status in new:
            self._store(self.waiting[status.session_id]._replace(status=status))
        return new

    def _apply_status(self, session: WaitingSession, known: WaitStatus) -> None:
        """Store a wait status as this process or another has written it."""
        if session.status != known:
            self._store(session)
            if session.request.id in self.incremental.requests:
                self._unexplained.add(session.request.id)

    def _store(self, session: WaitingSession) -> None:
        self.waiting[session.request.id] = session
        if session.status.eta is not None:
            self._with_eta.add(session.request.id)
        else:
            self._with_eta.discard(session.request.id)

    def _remove_waiting(self, session_id: str) -> None:
        session = self.waiting.pop(session_id, None)
        if session is None:
            return
        if session_id in self._blocked:
            self._blocked.remove(session_id)
        else:
            self.incremental.remove(session_id)
            self._remove_from_indexes(session.request)
        self._with_eta.discard(session_id)

    def _replace_running(self, gone: Sequence[RunningSession], here: Sequence[RunningSession]) -> None:
        """Remove the running sessions that ended or changed, and add those that started or changed."""
        for running in gone:
            del self._running[running.session_id]
        self._running.update((running.session_id, running) for running in here)
        self._touched.update((running.owner_id, running.project_id) for running in (*gone, *here))
        self.incremental.update(gone, here)

    def _index(self, request: SessionRequest) -> None:
        self._by_group_shape[request.group_id, request.shape].add(request.id)
        self._by_holders[request.owner_id, request.project_id].add(request.id)

    def _remove_from_indexes(self, request: SessionRequest) -> None:
        self._by_group_shape[request.group_id, request.shape].remove(request.id)
        self._by_holders[request.owner_id, request.project_id].remove(request.id)
        self._unexplained.discard(request.id)
        self._with_eta.discard(request.id)

    def _outdated(self, explainer: Explainer) -> set[str]:
        """Return the ids of waiting sessions whose reason, or its sentence, may have changed."""
        outdated, self._unexplained = self._unexplained, set()
        was, keys = self._text_inputs, {(group_id, shape.traits) for group_id, shape in self._by_group_shape}
        self._text_inputs = {key: explainer.capacity_inputs(*key) for key in keys}
        changed = {key for key in keys if key not in was or self._text_inputs[key] != was[key]}
        for group_shape, names in self._by_group_shape.items():
            is_new = names and (group_shape[0], group_shape[1].traits) in changed
            text = explainer.explain_capacity(*group_shape) if is_new else self._texts.get(group_shape)
            if text != self._texts.get(group_shape):
                self._texts[group_shape] = text
                outdated |= names
        touched = [holders for holders in self._touched if self.incremental.cluster.has_limits(*holders)]
        users, projects = {user for user, _ in touched}, {project for _, project in touched} - {None}
        for (user, project), names in self._by_holders.items():
            if user in users or project in projects:
                outdated |= names
        self._touched.clear()
        return outdated


def _status_of(session_id: str, reason: str, detail: str, start: StartEstimate | None) -> WaitStatus:
    return WaitStatus(session_id, reason, detail, start.at if start else None, start.eta_reason if start else "")
