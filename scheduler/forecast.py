"""When those who wait will start, if everyone who runs keeps their bound and nobody else comes. Pure.

It goes on from where a pass has left its board: at every end of a session, in order of time, it gives the room to those
who wait, by the rules of a pass. Whoever is reached has an estimate; whoever depends on sessions without a bound has
none. The order is the one in which the pass has served: under dominant-resource fairness later passes may serve
otherwise.
"""

from collections.abc import Iterable
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from scheduler.board import Board
from scheduler.reasons import because_text
from scheduler.room import Room
from scheduler.terms import Kind, Request, Running

Entry = tuple[int, Request]  # place in the order, and who stands there


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
    if not any(group.ends for group in board.groups.values()):
        return {}
    future = _Future(board, left, now, ghosts)
    for _ in range(look_ahead):
        at = future.next_end()
        if at is None:
            break
        future.advance(max(at, now))
    return future.starts


class _Future:
    """Those who wait, by kind, so that who cannot start is not looked at one by one."""

    def __init__(self, board: Board, left: Iterable[Request], now: datetime, ghosts: frozenset[str]) -> None:
        self._now = now
        self.starts: dict[str, Start] = {}
        self._board = board
        self._ghosts = ghosts
        self._kinds: dict[int, dict[Kind, list[Entry]]] = {group_id: {} for group_id in board.groups}  # heaps, by group
        self._barred: dict[tuple[int, int | None], list[Entry]] = {}  # by user and project
        self._were_barred: set[str] = set()
        self._new: set[Kind] = set()  # kinds in which somebody is no longer barred
        self._grown: dict[int, list[Room]] = {}  # rooms that grew since the last serving, by group
        self._ended: dict[int, int] = {}  # how many of those that run now have ended, by host id
        for place, request in enumerate(left):
            if request.group_id in self._kinds:
                self._add(place, request)

    def next_end(self) -> datetime | None:
        """Return when the next session ends; None if none does, or nobody waits any more."""
        if not self._barred and not any(self._kinds.values()):
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
                self._grown.setdefault(group_id, []).append(group.by_host[running.host_id])
        self._unbar(freed)
        self._serve(at)
        self._new.clear()
        self._grown.clear()

    def _add(self, place: int, request: Request) -> Kind | None:
        if self._board.bars(request):
            self._bar(place, request)
            self._drop_head(request)
            return None
        kind = request.kind
        heappush(self._kinds[request.group_id].setdefault(kind, []), (place, request))
        return kind

    def _bar(self, place: int, request: Request) -> None:
        self._barred.setdefault((request.owner_id, request.project_id), []).append((place, request))
        self._were_barred.add(request.id)

    def _unbar(self, freed: Iterable[Running]) -> None:
        """Put back in line whoever shares a limit with one of `freed` and is below it now."""
        owners = {running.owner_id for running in freed}
        projects = {running.project_id for running in freed} - {None}
        for key in [key for key in self._barred if key[0] in owners or key[1] in projects]:
            for place, request in self._barred.pop(key):
                kind = self._add(place, request)
                if kind is not None:
                    self._new.add(kind)

    def _serve(self, at: datetime) -> None:
        """Start those who can, in order, by the rules of a pass."""
        turns = [self._turn(kind) for group_id in self._kinds for kind in self._candidates(group_id, at)]
        heapify(turns)
        while turns:
            place, kind = heappop(turns)
            line = self._kinds[kind[0]].get(kind)
            if not line or line[0][0] != place:
                continue  # put in twice, and served already
            request = line[0][1]
            if self._board.bars(request):
                self._bar(*heappop(line))
                for other in self._drop_head(request):
                    heappush(turns, self._turn(other))
            elif self._starts(request, at):
                heappop(line)
            else:
                continue
            if line:
                heappush(turns, self._turn(kind))
            else:
                del self._kinds[kind[0]][kind]
            if self._board.groups[kind[0]].head is None and self._kinds[kind[0]]:
                heappush(turns, self._turn(self._first(kind[0])))  # starts, or becomes the head before others start

    def _turn(self, kind: Kind) -> tuple[int, Kind]:
        return self._kinds[kind[0]][kind][0][0], kind

    def _first(self, group_id: int) -> Kind:
        """Return the kind of whoever is first of those who wait for a group."""
        kinds = self._kinds[group_id]
        return min(kinds, key=lambda kind: kinds[kind][0][0])

    def _starts(self, request: Request, at: datetime) -> bool:
        seated = self._board.seat(request, at)
        if seated is None:
            return False
        ended = self._ended.get(seated[0].host_id, 0)
        self.starts[request.id] = Start(at, because_text(request, ended, request.id in self._were_barred))
        if request.id in self._ghosts:
            self._board.end(request.group_id, seated[1])
        return True

    def _candidates(self, group_id: int, at: datetime) -> set[Kind]:
        """Return the kinds of whom somebody might start now, and that of the first; drop an outdated reservation."""
        kinds, group = self._kinds[group_id], self._board.groups[group_id]
        if not kinds:
            return set()
        first = self._first(group_id)
        grown = self._grown.get(group_id, ())
        candidates = {first, *(kind for kind in self._new if kind[0] == group_id)}
        for room in grown:
            candidates.update(self._fitting(group_id, room))
        if not self._is_kept(kinds[first][0][1], grown, at):
            if group.reservation is not None:
                candidates.update(self._fitting(group_id, group.reservation.room))
            group.clear_head()
        return candidates

    def _fitting(self, group_id: int, room: Room) -> list[Kind]:
        """Return the kinds that fit a room."""
        cpu, memory, fgpu = room.cpu, room.memory, room.fgpu
        return [kind for kind in self._kinds[group_id] if kind[3] <= fgpu and kind[1] <= cpu and kind[2] <= memory]

    def _drop_head(self, barred: Request) -> list[Kind]:
        """Keep room no longer for somebody who is barred now; return the kinds that fit the room that was kept."""
        group_id, group = barred.group_id, self._board.groups[barred.group_id]
        kept = group.reservation
        if group.head is None or group.head.id != barred.id or kept is None:
            return []
        group.clear_head()
        self._grown.setdefault(group_id, []).append(kept.room)
        return [kind for kind in self._fitting(group_id, kept.room) if self._kinds[group_id][kind]]

    def _is_kept(self, first: Request, grown: Iterable[Room], at: datetime) -> bool:
        """Say whether the reservation stands: who is first has it, still cannot start, and no hold has begun since."""
        group = self._board.groups[first.group_id]
        head = group.head
        if head is None or head.id != first.id or any(room.fits(head.shape) for room in grown):
            return False
        if group.reservation is not None:
            return group.reservation.at is not None  # a hold may move to a better host
        return at < head.queued_at + group.rules.hold_after
