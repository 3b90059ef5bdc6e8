"""Those who wait, by what they ask for, so that who cannot start is not looked at one by one. Pure.

Everybody in a line has been refused on its board as it is, or is new. So only a few can start: who is new, whom limits
no longer bar, and who fits a room that has grown. The first of a group is always looked at: the head is found with it.
"""

from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush
from itertools import chain
from operator import attrgetter

from scheduler.core.board import Board
from scheduler.core.peers import Entry, Peers, Place
from scheduler.core.room import Room
from scheduler.core.terms import Form, Placement, Request, Running, Shape

Turn = tuple[Place, Peers]


class Line:
    """The requests that wait for groups of a board, served by the rules of a pass."""

    def __init__(self, board: Board) -> None:
        """Begin without anybody."""
        self._board = board
        self._ghosts: set[str] = set()
        self._peers: dict[int, dict[Form, Peers]] = {group_id: {} for group_id in board.groups}
        self._barred: dict[tuple[int, int | None], list[Entry]] = {}  # by user and project
        self._grown = {group_id: Grown() for group_id in board.groups}
        self._complete: set[int] = set()  # groups in which everybody's turn comes by itself
        self.were_barred: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Say whether nobody waits."""
        return not self._barred and not any(self._peers.values())

    def twin(self, board: Board) -> "Line":
        """Return a line of the same for a twin of the board, with nothing new; limits are looked at again."""
        twin = Line(board)
        twin._peers = {
            group_id: {form: peers.twin() for form, peers in forms.items()} for group_id, forms in self._peers.items()
        }
        for forms in self._peers.values():
            for peers in forms.values():
                for place, request in peers:
                    if board.bars(request):
                        twin.remove(place, request)
                        twin._bar((place, request))
                        twin._drop_head(request, [])
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
        forms = self._peers.get(request.group_id)
        if forms is None:
            return
        if self._board.bars(request):
            self._bar((place, request))
            self._drop_head(request, [])
            return
        form = request.form
        peers = forms.get(form)
        if peers is None:
            peers = forms[form] = Peers(request)
        peers.add(place, request)
        if is_new:
            peers.is_new = True

    def remove(self, place: Place, request: Request) -> None:
        """Take a request out of the line, wherever in it it stands."""
        forms = self._peers.get(request.group_id)
        if forms is None:
            return
        peers = forms.get(request.form)
        if peers is not None and peers.remove(place, request):
            if not peers.queues:
                del forms[request.form]
            return
        holders = request.owner_id, request.project_id
        self._barred[holders] = [entry for entry in self._barred[holders] if entry[0] != place]
        if not self._barred[holders]:
            del self._barred[holders]

    def grow(self, group_id: int, room: Room) -> None:
        """Note that a room of the group has more than when the line was served last."""
        self._grown[group_id].add(room)

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
        turns: list[Turn] = []
        chosen = {group_id: self._candidates(group_id, at) for group_id in self._peers}
        for peers in chain.from_iterable(chosen.values()):
            _take_turns(turns, peers)
        self._complete = {group_id for group_id, found in chosen.items() if len(found) == len(self._peers[group_id])}
        while turns:
            place, peers = heappop(turns)
            entry = peers.first()
            if entry is None or entry[0] != place:
                continue  # put in twice, and served already
            request = entry[1]
            if self._is_hopeless(peers, request):
                self._complete.discard(request.group_id)
            elif self._board.bars(request):
                self._bar(peers.pop(entry))
                self._drop_head(request, turns)
                self._go_on(turns, peers, request)
            elif placement := self._seat(request, at):
                started.append((request, placement))
                peers.pop(entry)
                self._go_on(turns, peers, request)
            else:
                self._complete.discard(request.group_id)
                self._refuse(turns, peers, at)
        for peers in chain.from_iterable(chosen.values()):
            peers.is_new = False
        for grown in self._grown.values():
            grown.clear()
        return started

    def _go_on(self, turns: list[Turn], peers: Peers, served: Request) -> None:
        """Give the next of them their turn, and the first of the group as long as there is no head."""
        group_id, forms = served.group_id, self._peers[served.group_id]
        following = peers.first()
        if following is not None:
            heappush(turns, (following[0], peers))
        elif not peers.queues:
            del forms[served.form]
        if forms and group_id not in self._complete and self._board.groups[group_id].head is None:
            _take_turns(turns, self._first(group_id))  # starts, or becomes the head before others start

    def _refuse(self, turns: list[Turn], peers: Peers, at: datetime) -> None:
        """Leave turns to those only who end before the head needs the kept room, where that is room enough."""
        kept = self._board.groups[peers.group_id].reservation
        if peers.longest is None and kept is not None and kept.at is not None and kept.room.fits(peers.shape):
            peers.longest = kept.at - at
            following = peers.first()
            if following is not None:
                heappush(turns, (following[0], peers))

    def _is_hopeless(self, peers: Peers, request: Request) -> bool:
        """Say whether a request that was refused before, and is not the head, cannot start: others were quicker."""
        if peers.is_new or self._grown[peers.group_id].fits(peers.shape):
            return False
        head = self._board.groups[peers.group_id].head
        return head is not None and head.id != request.id

    def _seat(self, request: Request, at: datetime) -> Placement | None:
        placement = self._board.seat(request, at)
        if placement is not None:
            if request.id in self._ghosts:
                self._board.end(request.group_id, request.id)
            self._grown[request.group_id].measure()
        return placement

    def _bar(self, entry: Entry) -> None:
        request = entry[1]
        self._barred.setdefault((request.owner_id, request.project_id), []).append(entry)
        self.were_barred.add(request.id)

    def _first(self, group_id: int) -> Peers:
        """Return those among whom is the first of all who wait for a group."""
        return min(self._peers[group_id].values(), key=attrgetter("place"))

    def _candidates(self, group_id: int, at: datetime) -> list[Peers]:
        """Return those among whom somebody might start now, and the first; drop an outdated reservation."""
        forms, group = self._peers[group_id], self._board.groups[group_id]
        if not forms:
            return []
        first, grown = self._first(group_id), self._grown[group_id]
        grown.measure()
        if not self._is_kept(first.head, grown, at):
            if group.reservation is not None:
                grown.add(group.reservation.room)
                grown.measure()
            group.clear_head()
        return [peers for peers in forms.values() if peers is first or peers.is_new or grown.fits(peers.shape)]

    def _drop_head(self, barred: Request, turns: list[Turn]) -> None:
        """Keep room no longer for somebody who is barred now; those who fit the room that was kept have turns."""
        group_id, group = barred.group_id, self._board.groups[barred.group_id]
        kept = group.reservation
        if group.head is None or group.head.id != barred.id or kept is None:
            return
        group.clear_head()
        self._grown[group_id].add(kept.room)
        self._grown[group_id].measure()
        for peers in self._peers[group_id].values():
            if peers.queues and kept.room.fits(peers.shape):
                _take_turns(turns, peers)

    def _is_kept(self, first: Request, grown: "Grown", at: datetime) -> bool:
        """Say whether the reservation stands: who is first has it, still cannot start, and no hold has begun since."""
        group = self._board.groups[first.group_id]
        head = group.head
        if head is None or head.id != first.id or grown.fits(head.shape):
            return False
        if group.reservation is not None:
            return group.reservation.at is not None  # a hold may move to a better host
        return at < head.queued_at + group.rules.hold_after


class Grown:
    """Rooms of a group that grew since its line was served last; nobody who was refused then fits elsewhere."""

    __slots__ = ("_most", "_rooms")

    def __init__(self) -> None:
        self._rooms: list[Room] = []
        self._most = (0, 0, 0)  # the largest of each: what exceeds it need not be held against every room

    def add(self, room: Room) -> None:
        """Note one more; `measure` before you ask."""
        if room not in self._rooms:
            self._rooms.append(room)

    def clear(self) -> None:
        """Forget them."""
        self._rooms.clear()
        self._most = (0, 0, 0)

    def measure(self) -> None:
        """Take in that rooms have changed."""
        if rooms := self._rooms:
            self._most = (
                max(room.cpu for room in rooms),
                max(room.memory for room in rooms),
                max(room.fgpu for room in rooms),
            )

    def fits(self, shape: Shape) -> bool:
        """Say whether one of them can take it."""
        cpu, memory, fgpu = self._most
        if shape.cpu > cpu or shape.memory > memory or shape.fgpu > fgpu:
            return False
        return any(room.fits(shape) for room in self._rooms)


def _take_turns(turns: list[Turn], peers: Peers) -> None:
    """Let all of them have turns, from the first on."""
    peers.longest = None
    heappush(turns, (peers.place, peers))
