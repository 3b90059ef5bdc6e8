"""A board that outlives passes, and the line of those who wait for it: a pass looks only at what has changed. Pure.

Serving it places whom `placement.plan` would place on the state as it is, in the same order and to the same device. It
need not look at everybody, as nobody who was refused can start unless a room has grown, a limit no longer bars them, or
the kept room is another; and who is first does not change by waiting. Groups that are shared fairly are served in full:
there it does.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from scheduler.core.board import Board
from scheduler.core.forecast import Start, play
from scheduler.core.line import Line
from scheduler.core.order import DEFAULT, bonus_of
from scheduler.core.peers import Place
from scheduler.core.placement import serve
from scheduler.core.terms import Order, Placement, Request, Running, Snapshot


class Standing:
    """Who runs where, who waits, and what is kept for whom, as the last pass has left it."""

    def __init__(self, snapshot: Snapshot, ranks: Mapping[str, int] = MappingProxyType({})) -> None:
        """Begin with the state of a snapshot, whose whole queue is new. Equals are served by rank, then by id."""
        self._rules = snapshot.rules
        self._ranks = ranks
        self.board = Board(snapshot)
        self._line = Line(self.board)
        self.requests: dict[str, Request] = {}
        self._fair: dict[str, Request] = {}  # those of them in groups that are shared fairly
        self._fair_groups = {group_id for group_id, rules in snapshot.rules.items() if rules.order == Order.DRF}
        self._bonus: dict[tuple[int, int], timedelta] = {}  # what a priority is worth in a group
        self._left: list[Request] = []  # of these, as served last
        for request in snapshot.queue:
            self.add(request)

    def twin(self) -> "Standing":
        """Return one that changes by itself; this one must have been served since it changed."""
        twin = object.__new__(Standing)
        twin._rules, twin._ranks = self._rules, self._ranks
        twin._fair_groups, twin._bonus = self._fair_groups, self._bonus
        twin.board = self.board.twin()
        twin._line = self._line.twin(twin.board)
        twin.requests, twin._fair, twin._left = self.requests.copy(), self._fair.copy(), self._left
        return twin

    def add(self, request: Request) -> None:
        """Let a request wait for room."""
        self.requests[request.id] = request
        if request.group_id in self._fair_groups:
            self._fair[request.id] = request
        else:
            self._line.add(self._place(request), request)

    def remove(self, session_id: str) -> None:
        """Let a request wait no longer."""
        request = self.requests.pop(session_id)
        if request.group_id in self._fair_groups:
            del self._fair[session_id]
        else:
            self._line.remove(self._place(request), request)

    def update(self, gone: Iterable[Running], here: Iterable[Running]) -> None:
        """Note who runs no longer, or not as noted, and who runs now."""
        had: dict[int, tuple[int, int, int]] = {}
        for running in (*gone, *here):
            group_id = self.board.group_of.get(running.host_id)
            if group_id is not None:
                room = self.board.groups[group_id].by_host[running.host_id]
                had.setdefault(running.host_id, (room.cpu, room.memory, room.fgpu))
        for running in gone:
            self.board.drop(running)
        for running in here:
            self.board.hold(running)
        for host_id, (cpu, memory, fgpu) in had.items():
            group_id = self.board.group_of[host_id]
            room = self.board.groups[group_id].by_host[host_id]
            if room.cpu > cpu or room.memory > memory or room.fgpu > fgpu:
                self._line.grow(group_id, room)
        self._line.unbar(gone)

    def serve(self, now: datetime) -> list[Placement]:
        """Start those who can, each in turn; whoever starts waits no longer."""
        for group_id, group in self.board.groups.items():
            if group.reservation is not None:
                self._line.grow(group_id, group.reservation.room)
            group.renew(self.requests.values())
        placements = [placement for _, placement in self._line.serve(now)]
        fair = sorted(self._fair.values(), key=self._place)
        served, self._left = serve(self.board, fair, self._rules, now)
        for placement in served:
            del self._fair[placement.session_id]
        placements += served
        for placement in placements:
            del self.requests[placement.session_id]
        return placements

    def starts(self, now: datetime, look_ahead: int) -> dict[str, Start]:
        """Return when those who wait start, by session id, looking so many ends of sessions ahead."""
        return self.twin().play(now, look_ahead) if self.requests and self.board.has_ends else {}

    def play(self, now: datetime, look_ahead: int, ghosts: Iterable[Request] = ()) -> dict[str, Start]:
        """As `starts`, the `ghosts` included, who are only asked about; nothing of use is left."""
        line = self._line.twin(self.board)
        for number, request in enumerate(self._left):
            line.add((1, number), request, is_new=False)
        for number, request in enumerate(ghosts):
            line.add((2, number), request, is_new=False, is_ghost=True)
        return play(self.board, line, now, look_ahead)

    def _place(self, request: Request) -> Place:
        group_id, priority, queued_at = request.group_id, request.priority, request.queued_at
        bonus = self._bonus.get((group_id, priority))
        if bonus is None:
            bonus = self._bonus[group_id, priority] = bonus_of(priority, self._rules.get(group_id, DEFAULT))
        return 0, queued_at - bonus, -priority, queued_at, self._ranks.get(request.id, 0), request.id
