"""What a process keeps of the platform's state, so that it reads and decides anew only what has changed.

`take_in` brings it up to date, `serve` is the pass, `news` what those who wait are told. It must be dropped if what was
decided is not written, as when the pass fails.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from accounts.limits import PolicyLimits
from scheduler.core.explanation import Explainer, ReasonText
from scheduler.core.forecast import StartEstimate
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.types import LimitHolder, Placement, RunningSession, SessionRequest, Shape
from scheduler.snapshot import NOTHING, FullState, StateChanges, WaitingSession, usage_of
from scheduler.wait_status import as_stored, needs_update
from sessions.models import WaitStatus

GroupShape = tuple[int, Shape]  # group and shape: whoever waits for the same is told the same, limits aside
HolderIds = tuple[int, int | None]  # user and project


class SchedulerState:
    """Who waits, who runs and what everybody was told, as read and decided so far."""

    def __init__(self, loaded: FullState) -> None:
        """Begin with the whole state."""
        self.since = loaded.since
        self.state = IncrementalState(loaded.snapshot)
        self.waiting = {session.request.id: session for session in loaded.waiting}
        self.unconfirmed: set[str] = set()  # placed here and not read since: others may have been quicker
        self._running = {running.session_id: running for running in loaded.snapshot.running}
        self._blocked = set(self.waiting).difference(self.state.requests)
        self._reason_texts: dict[GroupShape, ReasonText | None] = {}  # as told last
        self._explanation_inputs: dict[int, object] = {}  # what they hang on, by group
        self._unexplained = set(self.state.requests)
        self._with_eta = {name for name, session in self.waiting.items() if session.status.eta is not None}
        self._touched: set[HolderIds] = set()  # who may take more, or less, than when those who wait were told last
        self._by_group_shape: dict[GroupShape, set[str]] = defaultdict(set)
        self._by_holders: dict[HolderIds, set[str]] = defaultdict(set)
        for request in self.state.requests.values():
            self._index(request)

    def apply_changes(self, changes: StateChanges) -> None:
        """Note what has changed since `since`. What is known already may be among it."""
        self.since = changes.since
        self.unconfirmed.clear()
        waiting = {session.request.id: session for session in changes.waiting}
        for session_id in changes.ids:
            session, was = waiting.get(session_id), self.waiting.get(session_id)
            if session is not None and was is not None and session[:3] == was[:3]:
                self._apply_status(session, was.status)
                del waiting[session_id]
            else:
                self._remove_waiting(session_id)
        here = {running.session_id: running for running in changes.running}
        gone = [self._running[name] for name in changes.ids if name in self._running]
        same = {running.session_id for running in gone if here.get(running.session_id) == running}
        self._replace(
            [running for running in gone if running.session_id not in same],
            [running for name, running in here.items() if name not in same],
        )
        self.add_limits(changes.limits)
        for session_id, session in waiting.items():
            self._note(session)
            self._blocked.add(session_id)

    def add_limits(self, limits: Mapping[int, PolicyLimits]) -> None:
        """Note the limits of users, where they are not known yet."""
        used = None
        for owner_id, its in limits.items():
            if not self.state.cluster.knows_holder(owner_id):
                used = usage_of(self._running.values()) if used is None else used
                self.state.cluster.add_holder(owner_id, LimitHolder(limits=its, used=used.get(owner_id, NOTHING)))

    def enqueue_due(self, now: datetime) -> None:
        """Let those into the queue who wait for nothing but room from now on."""
        for session_id in [name for name in self._blocked if self.waiting[name].blocked_status(now) is None]:
            self._blocked.remove(session_id)
            request = self.waiting[session_id].request
            self.state.add(request)
            self._index(request)
            self._unexplained.add(session_id)

    def serve(self, now: datetime) -> list[Placement]:
        """Place everybody who can start, by the state as it is known; return where."""
        self.enqueue_due(now)
        placements = self.state.serve(now)
        for placement in placements:
            request = self.waiting.pop(placement.session_id).request
            self._forget_words(request)
            self._touched.add((request.owner_id, request.project_id))
            self._running[request.id] = self.state.cluster.groups[request.group_id].running[request.id]
            self.unconfirmed.add(request.id)
        return placements

    def changed_statuses(self, now: datetime) -> list[WaitStatus]:
        """Return what those who wait are to be told, where it says something new; it counts as told from then on."""
        explain = Explainer(self.state.cluster)
        starts = self.state.starts(now, LOOK_AHEAD)
        outdated = self._outdated(explain)
        outdated.update(starts)
        outdated.update(self._with_eta.intersection(self.state.requests))
        found = []
        for session_id in outdated:
            reason, detail = explain.explain(self.waiting[session_id].request)[1:3]
            found.append(_status(session_id, reason.value, detail, starts.get(session_id)))
        for session_id in self._blocked:
            blocked = self.waiting[session_id].blocked_status(now)
            if blocked is not None:
                found.append(blocked)
        new = [
            as_stored(status) for status in found if needs_update(self.waiting[status.session_id].status, status, now)
        ]
        for status in new:
            self._note(self.waiting[status.session_id]._replace(status=status))
        return new

    def _apply_status(self, session: WaitingSession, known: WaitStatus) -> None:
        """Note what a session was told, as this process or another has written it."""
        if session.status != known:
            self._note(session)
            if session.request.id in self.state.requests:
                self._unexplained.add(session.request.id)

    def _note(self, session: WaitingSession) -> None:
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
            self.state.remove(session_id)
            self._forget_words(session.request)
        self._with_eta.discard(session_id)

    def _replace(self, gone: Sequence[RunningSession], here: Sequence[RunningSession]) -> None:
        """Note who runs no longer as it was, and who runs now."""
        for running in gone:
            del self._running[running.session_id]
        self._running.update((running.session_id, running) for running in here)
        self._touched.update((running.owner_id, running.project_id) for running in (*gone, *here))
        self.state.update(gone, here)

    def _index(self, request: SessionRequest) -> None:
        self._by_group_shape[request.group_id, request.shape].add(request.id)
        self._by_holders[request.owner_id, request.project_id].add(request.id)

    def _forget_words(self, request: SessionRequest) -> None:
        self._by_group_shape[request.group_id, request.shape].remove(request.id)
        self._by_holders[request.owner_id, request.project_id].remove(request.id)
        self._unexplained.discard(request.id)
        self._with_eta.discard(request.id)

    def _outdated(self, explain: Explainer) -> set[str]:
        """Return those whose reason, or its words, may be another than they were told."""
        outdated, self._unexplained = self._unexplained, set()
        was, groups = self._explanation_inputs, {group_id for group_id, _ in self._by_group_shape}
        self._explanation_inputs = {group_id: explain.explanation_inputs(group_id) for group_id in groups}
        moved = {
            group_id
            for group_id in groups
            if group_id not in was or self._explanation_inputs[group_id] != was[group_id]
        }
        for place, names in self._by_group_shape.items():
            reason_text = (
                explain.explain_shortage(*place) if names and place[0] in moved else self._reason_texts.get(place)
            )
            if reason_text != self._reason_texts.get(place):
                self._reason_texts[place] = reason_text
                outdated |= names
        touched = [limits_of for limits_of in self._touched if self.state.cluster.has_limits(*limits_of)]
        users, projects = {user for user, _ in touched}, {project for _, project in touched} - {None}
        for (user, project), names in self._by_holders.items():
            if user in users or project in projects:
                outdated |= names
        self._touched.clear()
        return outdated


def _status(session_id: str, reason: str, detail: str, start: StartEstimate | None) -> WaitStatus:
    return WaitStatus(session_id, reason, detail, start.at if start else None, start.eta_reason if start else "")
