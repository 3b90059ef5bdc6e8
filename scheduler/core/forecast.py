"""When those who wait will start, if everyone who runs keeps their bound and nobody else comes. Pure.

It goes on from where a pass has left its board: at every end of a session, in order of time, it gives the room to those
who wait, by the rules of a pass. Whoever is reached has an estimate; whoever depends on sessions without a bound has
none. The order is the one in which the pass has served: under dominant-resource fairness later passes may serve
otherwise.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from scheduler.core.board import Board
from scheduler.core.line import Line
from scheduler.core.reasons import because_text
from scheduler.core.terms import Request


class Start(NamedTuple):
    """When a session starts at the latest, and why not before, in words."""

    at: datetime
    because: str


def forecast(
    board: Board, left: Iterable[Request], now: datetime, look_ahead: int, ghosts: frozenset[str] = frozenset()
) -> dict[str, Start]:
    """Return the starts of those in `left`, in the order served, by session id; `board` is played on and spent.

    Looks ahead at `look_ahead` moments at which sessions end. The `ghosts` in `left` are only asked about: where they
    would start they take nothing.
    """
    if not board.has_ends:
        return {}
    line = Line(board)
    for place, request in enumerate(left):
        line.add((place,), request, is_new=False, is_ghost=request.id in ghosts)
    return play(board, line, now, look_ahead)


def play(board: Board, line: Line, now: datetime, look_ahead: int) -> dict[str, Start]:
    """Return the starts of those in the line, by session id; both are played on and spent."""
    future = _Future(board, line, now)
    for _ in range(look_ahead):
        at = future.next_end()
        if at is None:
            break
        future.advance(max(at, now))
    return future.starts


class _Future:
    """The board and the line as time goes on."""

    def __init__(self, board: Board, line: Line, now: datetime) -> None:
        self._now = now
        self._board = board
        self._line = line
        self._ended: dict[int, int] = {}  # how many of those that run now have ended, by host id
        self.starts: dict[str, Start] = {}

    def next_end(self) -> datetime | None:
        """Return when the next session ends; None if none does, or nobody waits any more."""
        if self._line.is_empty:
            return None
        return min((group.ends[0][0] for group in self._board.groups.values() if group.ends), default=None)

    def advance(self, at: datetime) -> None:
        """Let every session end whose bound is not after `at`, then serve those who wait."""
        freed = []
        for group_id, group in self._board.groups.items():
            while group.ends and group.ends[0][0] <= at:
                running = self._board.end(group_id, group.ends[0][1])
                freed.append(running)
                if running.started_at <= self._now:
                    self._ended[running.host_id] = self._ended.get(running.host_id, 0) + 1
                self._line.grow(group_id, group.by_host[running.host_id])
        self._line.unbar(freed)
        for request, placement in self._line.serve(at):
            because = because_text(request, self._ended.get(placement.host_id, 0), request.id in self._line.were_barred)
            self.starts[request.id] = Start(at, because)
