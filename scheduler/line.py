"""Those who wait, by kind, so that who cannot start is not looked at one by one. Pure.

Everybody in a line has been refused on its board as it is, or is new. So only a few can start: who is new, whom limits
no longer bar, and who fits a room that has grown. The first of a group is always looked at: the head is found with it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any

from scheduler.board import Board
from scheduler.room import Room
from scheduler.terms import Kind, Placement, Request, Running

Place = tuple[Any, ...]  # in the order to serve: comparable, and different for each
Entry = tuple[Place, Request]
Turn = tuple[Place, Kind]


class Line:
    """The requests that wait for groups of a board, served by the rules of a pass."""

    def __init__(self, board: Board) -> None:
        """Begin without anybody."""
        self._board = board
        self._ghosts: set[str] = set()
        self._kinds: dict[int, dict[Kind, list[Entry]]] = {group_id: {} for group_id in board.groups}  # in order
        self._barred: dict[tuple[int, int | None], list[Entry]] = {}  # by user and project
        self._new: set[Kind] = set()  # kinds in which somebody is new, or no longer barred
        self._grown: dict[int, list[Room]] = {}  # rooms that grew since the last serving, by group
        self._complete: set[int] = set()  # groups in which everybody's turn comes by itself
        self.were_barred: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Say whether nobody waits."""
        return not self._barred and not any(self._kinds.values())

    def twin(self, board: Board) -> "Line":
        """Return a line of the same for a twin of the board, with nothing new; limits are looked at again."""
        twin = Line(board)
        bars = board.bars
        for group_id, kinds in self._kinds.items():
            for kind, entries in kinds.items():
                barred = [entry for entry in entries if bars(entry[1])]
                if len(barred) < len(entries):
                    out = {place for place, _ in barred}
                    twin._kinds[group_id][kind] = (
                        [entry for entry in entries if entry[0] not in out] if out else entries.copy()
                    )
                for entry in barred:
                    twin._bar(entry)
                    twin._drop_head(entry[1])
        for entries in self._barred.values():
            for place, request in entries:
                twin.add(place, request, is_new=False)
        return twin

    def add(self, place: Place, request: Request, *, is_new: bool = True, is_ghost: bool = False) -> None:
        """Put a request into the line, new or already refused; one for a group that the board lacks is left out.

        A ghost is only asked about: where it would start it takes nothing.
        """
        if is_ghost:
            self._ghosts.add(request.id)
        if request.group_id not in self._kinds:
            return
        if self._board.bars(request):
            self._bar((place, request))
            self._drop_head(request)
            return
        entries = self._kinds[request.group_id].setdefault(request.kind, [])
        if entries and place < entries[-1][0]:
            insort(entries, (place, request))
        else:
            entries.append((place, request))
        if is_new:
            self._new.add(request.kind)

    def remove(self, place: Place, request: Request) -> None:
        """Take a request out of the line, wherever in it it stands."""
        if request.group_id not in self._kinds:
            return
        kind, holders = request.kind, (request.owner_id, request.project_id)
        entries = self._kinds[request.group_id].get(kind, [])
        position = bisect_left(entries, (place,))
        if position < len(entries) and entries[position][0] == place:
            del entries[position]
            if not entries:
                del self._kinds[request.group_id][kind]
            return
        self._barred[holders] = [entry for entry in self._barred[holders] if entry[0] != place]
        if not self._barred[holders]:
            del self._barred[holders]

    def grow(self, group_id: int, room: Room) -> None:
        """Note that a room of the group has more than when the line was served last."""
        self._grown.setdefault(group_id, []).append(room)

    def unbar(self, freed: Iterable[Running]) -> None:
        """Put back in line whoever shares a limit with one of `freed` and is below it now."""
        owners = {running.owner_id for running in freed}
        projects = {running.project_id for running in freed} - {None}
        for key in [key for key in self._barred if key[0] in owners or key[1] in projects]:
            for place, request in self._barred.pop(key):
                self.add(place, request)

    def serve(self, at: datetime) -> list[tuple[Request, Placement]]:
        """Start those who can, in order, and take them out of the line; return who started where."""
        started: list[tuple[Request, Placement]] = []
        chosen = {group_id: self._candidates(group_id, at) for group_id in self._kinds}
        turns = [self._turn(kind) for kinds in chosen.values() for kind in kinds]
        heapify(turns)
        self._complete = {group_id for group_id, kinds in chosen.items() if len(kinds) == len(self._kinds[group_id])}
        while turns:
            place, kind = heappop(turns)
            entries = self._kinds[kind[0]].get(kind)
            if not entries or entries[0][0] != place:
                continue  # put in twice, and served already
            request = entries[0][1]
            if self._board.bars(request):
                self._bar(entries.pop(0))
                for other in self._drop_head(request):
                    heappush(turns, self._turn(other))
            elif placement := self._seat(request, at):
                started.append((request, placement))
                del entries[0]
            else:
                self._complete.discard(kind[0])
                continue
            self._go_on(turns, kind)
        self._new.clear()
        self._grown.clear()
        return started

    def _go_on(self, turns: list[Turn], kind: Kind) -> None:
        """Give the next of a kind its turn, and the first of the group as long as there is no head."""
        group_id, kinds = kind[0], self._kinds[kind[0]]
        if kinds[kind]:
            heappush(turns, self._turn(kind))
        else:
            del kinds[kind]
        if kinds and group_id not in self._complete and self._board.groups[group_id].head is None:
            heappush(turns, self._turn(self._first(group_id)))  # starts, or becomes the head before others start

    def _bar(self, entry: Entry) -> None:
        request = entry[1]
        self._barred.setdefault((request.owner_id, request.project_id), []).append(entry)
        self.were_barred.add(request.id)

    def _turn(self, kind: Kind) -> Turn:
        return self._kinds[kind[0]][kind][0][0], kind

    def _first(self, group_id: int) -> Kind:
        """Return the kind of whoever is first of those who wait for a group."""
        kinds = self._kinds[group_id]
        return min(kinds, key=lambda kind: kinds[kind][0][0])

    def _seat(self, request: Request, at: datetime) -> Placement | None:
        placement = self._board.seat(request, at)
        if placement is not None and request.id in self._ghosts:
            self._board.end(request.group_id, request.id)
        return placement

    def _candidates(self, group_id: int, at: datetime) -> set[Kind]:
        """Return the kinds of whom somebody might start now, and that of the first; drop an outdated reservation."""
        kinds, group = self._kinds[group_id], self._board.groups[group_id]
        if not kinds:
            return set()
        first = self._first(group_id)
        grown = self._grown.get(group_id, ())
        candidates = {first, *(kind for kind in self._new if kind[0] == group_id and kind in kinds)}
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
        fitting = [kind for kind in self._kinds[group_id] if kind[3] <= fgpu and kind[1] <= cpu and kind[2] <= memory]
        return fitting if room.grain == 1 else [kind for kind in fitting if not kind[3] % room.grain]

    def _drop_head(self, barred: Request) -> list[Kind]:
        """Keep room no longer for somebody who is barred now; return the kinds that fit the room that was kept."""
        group_id, group = barred.group_id, self._board.groups[barred.group_id]
        kept = group.reservation
        if group.head is None or group.head.id != barred.id or kept is None:
            return []
        group.clear_head()
        self.grow(group_id, kept.room)
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
