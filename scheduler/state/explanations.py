"""Why sessions of the queue wait: whose text may have changed since it was written, and the latest estimates. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final

from scheduler.core.queue.remaining_limits import HolderLimits
from scheduler.core.types import RunningSession, SessionRequest, Shape, Traits, entries_in
from scheduler.core.waiting.explanation import Explainer, ReasonText
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.snapshot.queue import WaitingSession
from scheduler.state.elastic_members import HolderIds
from scheduler.state.wait_status import status_by_start
from sessions.models import WaitStatus

MAX_EXPLAINED: Final = 500  # waiting sessions in a pass: takes some 30 ms with the write
GroupShape = tuple[int, Shape]  # requests with equal ones have the same explanation, limits aside


class Explanations:
    """The sessions of the queue by what their explanation derives from."""

    def __init__(self, requests: Iterable[SessionRequest], new: Iterable[str]) -> None:
        """Begin with the requests of the queue; `new` are the ids of those that nothing was written of yet."""
        self.by_holders: dict[HolderIds, set[str]] = defaultdict(set)
        self._by_group_shape: dict[GroupShape, set[str]] = defaultdict(set)
        self._texts: dict[GroupShape, ReasonText | None] = {}  # as of the last explanation
        self._text_inputs: dict[tuple[int, Traits], object] = {}  # what the texts of a group, by traits, derive from
        self._touched: set[HolderIds] = set()  # holders whose usage has changed since the last explanation
        self._unexplained = dict.fromkeys(new)
        self._outdated: dict[str, None] = {}  # by id, as those above: sessions whose text may have changed
        self._starts: Mapping[str, StartEstimate] = {}  # latest estimates
        self._estimated: dict[str, None] = {}  # sessions, by id, of whose latest estimate nothing is written yet
        for request in requests:
            self._outdated[request.id] = None
            self.add(request)

    def add(self, request: SessionRequest) -> None:
        """Add a session that has come into the queue."""
        for group_shape in _group_shapes(request):
            self._by_group_shape[group_shape].add(request.id)
        self.by_holders[request.owner_id, request.project_id].add(request.id)

    def remove(self, request: SessionRequest) -> None:
        """Remove a session that has left the queue."""
        holders = request.owner_id, request.project_id
        for group_shape in _group_shapes(request):
            self._by_group_shape[group_shape].remove(request.id)
            if not self._by_group_shape[group_shape]:
                del self._by_group_shape[group_shape]
                self._texts.pop(group_shape, None)
        self.by_holders[holders].remove(request.id)
        if not self.by_holders[holders]:
            del self.by_holders[holders]
        for due in (self._unexplained, self._outdated, self._estimated):
            due.pop(request.id, None)

    def request_for(self, session_id: str) -> None:
        """Have a session of the queue explained before those whose text may have changed."""
        self._unexplained[session_id] = None

    def note_usage(self, sessions: Iterable[SessionRequest | RunningSession]) -> None:
        """Note that what the owners and projects of these sessions use has changed."""
        self._touched.update((session.owner_id, session.project_id) for session in sessions)

    def note_starts(self, starts: Mapping[str, StartEstimate], outdated: Iterable[str]) -> None:
        """Take new estimates; `outdated` are the ids of the sessions of the queue whose status may change by them."""
        self._starts = starts
        self._estimated = dict.fromkeys(outdated)

    @property
    def is_behind(self) -> bool:
        """Whether sessions are left to be explained, or have a new estimate."""
        return bool(self._unexplained or self._outdated or self._estimated)

    def take(
        self, explainer: Explainer, limits: HolderLimits, waiting: Mapping[str, WaitingSession]
    ) -> list[WaitStatus]:
        """Return the statuses of the next sessions that may have new ones, at most `MAX_EXPLAINED`."""
        self._note_outdated(explainer, limits)
        found = []
        for session_id in self._take_due():
            session = waiting[session_id]
            reason, detail = explainer.explain(session.request)[1:3]
            if session_id in self._estimated:
                del self._estimated[session_id]
                found.append(status_by_start(session_id, reason.value, detail, self._starts.get(session_id)))
            else:
                found.append(session.status._replace(reason=reason.value, detail=detail))
        return found

    def _take_due(self) -> list[str]:
        """Return the next sessions to be explained, new ones first; they count as explained."""
        due = chain(self._unexplained, self._outdated, self._estimated)
        taken = list(islice(dict.fromkeys(islice(due, 2 * MAX_EXPLAINED)), MAX_EXPLAINED))
        for session_id in taken:
            self._unexplained.pop(session_id, None)
            self._outdated.pop(session_id, None)
        return taken

    def _note_outdated(self, explainer: Explainer, limits: HolderLimits) -> None:
        """Have the waiting sessions explained again whose reason, or its sentence, may have changed."""
        was, keys = self._text_inputs, {(group_id, shape.traits) for group_id, shape in self._by_group_shape}
        self._text_inputs = {key: explainer.capacity_inputs(*key) for key in keys}
        changed = {key for key in keys if key not in was or self._text_inputs[key] != was[key]}
        for group_shape, names in self._by_group_shape.items():
            is_new = group_shape[1].members > 1 or (group_shape[0], group_shape[1].traits) in changed
            text = explainer.explain_capacity(*group_shape) if is_new else self._texts.get(group_shape)
            if text != self._texts.get(group_shape):
                self._texts[group_shape] = text
                self._outdated |= dict.fromkeys(names)
        touched = [holders for holders in self._touched if limits.apply_to(*holders)]
        users, projects = {user for user, _ in touched}, {project for _, project in touched} - {None}
        for (user, project), names in self.by_holders.items():
            if user in users or project in projects:
                self._outdated |= dict.fromkeys(names)
        self._touched.clear()


def _group_shapes(request: SessionRequest) -> list[GroupShape]:
    """Return what the explanation of a request derives from: several where it is by GPU memory."""
    return [(entry.group_id, entry.shape) for entry in entries_in(request.group_id, request)]
