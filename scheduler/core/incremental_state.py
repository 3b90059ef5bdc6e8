"""A board that outlives passes, and the line of those who wait for it: a pass looks only at what has changed. Pure.

Serving it places whom `placement.plan` would place on the state as it is, in the same order and to the same device. It
need not look at everybody, as nobody who was refused can start unless a room has grown, a limit no longer bars them, or
the kept room is another; and who is first does not change by waiting. Groups that are shared fairly are served in full:
there it does.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from scheduler.core.cluster_state import ClusterState
from scheduler.core.forecast import StartEstimate, play
from scheduler.core.placement import serve
from scheduler.core.queue_order import DEFAULT, bonus_of
from scheduler.core.request_class import QueueKey
from scheduler.core.types import Placement, QueueOrder, RunningSession, SessionRequest, Snapshot
from scheduler.core.wait_queue import WaitQueue


class IncrementalState:
    """Who runs where, who waits, and what is kept for whom, as the last pass has left it."""

    def __init__(self, snapshot: Snapshot, ranks: Mapping[str, int] = MappingProxyType({})) -> None:
        """Begin with the state of a snapshot, whose whole queue is new. Equals are served by rank, then by id."""
        self._rules = snapshot.rules
        self._ranks = ranks
        self.cluster = ClusterState(snapshot)
        self._queue = WaitQueue(self.cluster)
        self.requests: dict[str, SessionRequest] = {}
        self._fair: dict[str, SessionRequest] = {}  # those of them in groups that are shared fairly
        self._fair_groups = {
            group_id for group_id, rules in snapshot.rules.items() if rules.queue_order == QueueOrder.DRF
        }
        self._bonus: dict[tuple[int, int], timedelta] = {}  # what a priority is worth in a group
        self._left: list[SessionRequest] = []  # of these, as served last
        for request in snapshot.queue:
            self.add(request)

    def copy(self) -> "IncrementalState":
        """Return one that changes by itself; this one must have been served since it changed."""
        copy = object.__new__(IncrementalState)
        copy._rules, copy._ranks = self._rules, self._ranks
        copy._fair_groups, copy._bonus = self._fair_groups, self._bonus
        copy.cluster = self.cluster.copy()
        copy._queue = self._queue.copy(copy.cluster)
        copy.requests, copy._fair, copy._left = self.requests.copy(), self._fair.copy(), self._left
        return copy

    def add(self, request: SessionRequest) -> None:
        """Let a request wait for room."""
        self.requests[request.id] = request
        if request.group_id in self._fair_groups:
            self._fair[request.id] = request
        else:
            self._queue.add(self._queue_key(request), request)

    def remove(self, session_id: str) -> None:
        """Let a request wait no longer."""
        request = self.requests.pop(session_id)
        if request.group_id in self._fair_groups:
            del self._fair[session_id]
        else:
            self._queue.remove(self._queue_key(request), request)

    def update(self, gone: Iterable[RunningSession], here: Iterable[RunningSession]) -> None:
        """Note who runs no longer, or not as noted, and who runs now."""
        had: dict[int, tuple[int, int, int]] = {}
        for running in (*gone, *here):
            group_id = self.cluster.group_of.get(running.host_id)
            if group_id is not None:
                host = self.cluster.groups[group_id].host_capacities[running.host_id]
                had.setdefault(running.host_id, (host.cpu, host.memory, host.fgpu))
        for running in gone:
            self.cluster.remove_running(running)
        for running in here:
            self.cluster.add_running(running)
        for host_id, (cpu, memory, fgpu) in had.items():
            group_id = self.cluster.group_of[host_id]
            host = self.cluster.groups[group_id].host_capacities[host_id]
            if host.cpu > cpu or host.memory > memory or host.fgpu > fgpu:
                self._queue.note_growth(group_id, host)
        self._queue.readmit(gone)

    def serve(self, now: datetime) -> list[Placement]:
        """Start those who can, each in turn; whoever starts waits no longer."""
        for group_id, group in self.cluster.groups.items():
            if group.reservation is not None:
                self._queue.note_growth(group_id, group.reservation.host)
            group.begin_pass(self.requests.values())
        placements = [placement for _, placement in self._queue.serve(now)]
        fair = sorted(self._fair.values(), key=self._queue_key)
        served, self._left = serve(self.cluster, fair, self._rules, now)
        for placement in served:
            del self._fair[placement.session_id]
        placements += served
        for placement in placements:
            del self.requests[placement.session_id]
        return placements

    def starts(self, now: datetime, look_ahead: int) -> dict[str, StartEstimate]:
        """Return when those who wait start, by session id, looking so many ends of sessions ahead."""
        return self.copy().play(now, look_ahead) if self.requests and self.cluster.has_ends else {}

    def play(
        self, now: datetime, look_ahead: int, hypothetical: Iterable[SessionRequest] = ()
    ) -> dict[str, StartEstimate]:
        """As `starts`, the `ghosts` included, who are only asked about; nothing of use is left."""
        queue = self._queue.copy(self.cluster)
        for number, request in enumerate(self._left):
            queue.add((1, number), request, is_new=False)
        for number, request in enumerate(hypothetical):
            queue.add((2, number), request, is_new=False, is_hypothetical=True)
        return play(self.cluster, queue, now, look_ahead)

    def _queue_key(self, request: SessionRequest) -> QueueKey:
        group_id, priority, queued_at = request.group_id, request.priority, request.queued_at
        bonus = self._bonus.get((group_id, priority))
        if bonus is None:
            bonus = self._bonus[group_id, priority] = bonus_of(priority, self._rules.get(group_id, DEFAULT))
        return 0, queued_at - bonus, -priority, queued_at, self._ranks.get(request.id, 0), request.id
