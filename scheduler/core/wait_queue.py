"""Those who wait, by what they ask for, so that who cannot start is not looked at one by one. Pure.

Everybody in a line has been refused on its board as it is, or is new. So only a few can start: who is new, whom limits
no longer bar, and who fits a room that has grown. The first of a group is always looked at: the head is found with it.
"""

from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush
from itertools import chain
from operator import attrgetter

from scheduler.core.cluster_state import ClusterState
from scheduler.core.host_capacity import HostCapacity
from scheduler.core.request_class import QueueEntry, QueueKey, RequestClass
from scheduler.core.types import ClassKey, Placement, RunningSession, SessionRequest, Shape

Turn = tuple[QueueKey, RequestClass]


class WaitQueue:
    """The requests that wait for groups of a board, served by the rules of a pass."""

    def __init__(self, cluster: ClusterState) -> None:
        """Begin without anybody."""
        self._cluster = cluster
        self._hypothetical_ids: set[str] = set()
        self._classes: dict[int, dict[ClassKey, RequestClass]] = {group_id: {} for group_id in cluster.groups}
        self._over_limit: dict[tuple[int, int | None], list[QueueEntry]] = {}  # by user and project
        self._grown = {group_id: GrownHosts() for group_id in cluster.groups}
        self._complete: set[int] = set()  # groups in which everybody's turn comes by itself
        self.over_limit_ids: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Say whether nobody waits."""
        return not self._over_limit and not any(self._classes.values())

    def copy(self, cluster: ClusterState) -> "WaitQueue":
        """Return a line of the same for a twin of the board, with nothing new; limits are looked at again."""
        copy = WaitQueue(cluster)
        copy._classes = {
            group_id: {class_key: request_class.copy() for class_key, request_class in classes.items()}
            for group_id, classes in self._classes.items()
        }
        for classes in self._classes.values():
            for request_class in classes.values():
                for key, request in request_class:
                    if cluster.exceeds_limit(request):
                        copy.remove(key, request)
                        copy._set_aside((key, request))
                        copy._drop_head(request, [])
        for entries in self._over_limit.values():
            for key, request in entries:
                copy.add(key, request, is_new=False)
        return copy

    def add(
        self, key: QueueKey, request: SessionRequest, *, is_new: bool = True, is_hypothetical: bool = False
    ) -> None:
        """Put a request into the line, new or already refused; one for a group that the board lacks is left out.

        A ghost is only asked about: where it would start it takes nothing.
        """
        if is_hypothetical:
            self._hypothetical_ids.add(request.id)
        classes = self._classes.get(request.group_id)
        if classes is None:
            return
        if self._cluster.exceeds_limit(request):
            self._set_aside((key, request))
            self._drop_head(request, [])
            return
        class_key = request.class_key
        request_class = classes.get(class_key)
        if request_class is None:
            request_class = classes[class_key] = RequestClass(request)
        request_class.add(key, request)
        if is_new:
            request_class.is_new = True

    def remove(self, key: QueueKey, request: SessionRequest) -> None:
        """Take a request out of the line, wherever in it it stands."""
        classes = self._classes.get(request.group_id)
        if classes is None:
            return
        request_class = classes.get(request.class_key)
        if request_class is not None and request_class.remove(key, request):
            if not request_class.queues:
                del classes[request.class_key]
            return
        limits_of = request.owner_id, request.project_id
        self._over_limit[limits_of] = [entry for entry in self._over_limit[limits_of] if entry[0] != key]
        if not self._over_limit[limits_of]:
            del self._over_limit[limits_of]

    def note_growth(self, group_id: int, host: HostCapacity) -> None:
        """Note that a room of the group has more than when the line was served last."""
        self._grown[group_id].add(host)

    def readmit(self, freed: Iterable[RunningSession]) -> None:
        """Put back in line whoever shares a limit with one of `freed` and is below it now."""
        owners = {running.owner_id for running in freed}
        projects = {running.project_id for running in freed} - {None}
        for ids in [key for key in self._over_limit if key[0] in owners or key[1] in projects]:
            for key, request in self._over_limit.pop(ids):
                self.add(key, request)

    def serve(self, at: datetime) -> list[tuple[SessionRequest, Placement]]:
        """Start those who can, in order, and take them out of the line; return who started where."""
        started: list[tuple[SessionRequest, Placement]] = []
        turns: list[Turn] = []
        chosen = {group_id: self._candidates(group_id, at) for group_id in self._classes}
        for request_class in chain.from_iterable(chosen.values()):
            _take_turns(turns, request_class)
        self._complete = {group_id for group_id, found in chosen.items() if len(found) == len(self._classes[group_id])}
        while turns:
            key, request_class = heappop(turns)
            entry = request_class.first()
            if entry is None or entry[0] != key:
                continue  # put in twice, and served already
            request = entry[1]
            if self._cannot_start(request_class, request):
                self._complete.discard(request.group_id)
            elif self._cluster.exceeds_limit(request):
                self._set_aside(request_class.pop(entry))
                self._drop_head(request, turns)
                self._go_on(turns, request_class, request)
            elif placement := self._start(request, at):
                started.append((request, placement))
                request_class.pop(entry)
                self._go_on(turns, request_class, request)
            else:
                self._complete.discard(request.group_id)
                self._refuse(turns, request_class, at)
        for request_class in chain.from_iterable(chosen.values()):
            request_class.is_new = False
        for grown in self._grown.values():
            grown.clear()
        return started

    def _go_on(self, turns: list[Turn], request_class: RequestClass, served: SessionRequest) -> None:
        """Give the next of them their turn, and the first of the group as long as there is no head."""
        group_id, classes = served.group_id, self._classes[served.group_id]
        following = request_class.first()
        if following is not None:
            heappush(turns, (following[0], request_class))
        elif not request_class.queues:
            del classes[served.class_key]
        if classes and group_id not in self._complete and self._cluster.groups[group_id].head is None:
            _take_turns(turns, self._first(group_id))  # starts, or becomes the head before others start

    def _refuse(self, turns: list[Turn], request_class: RequestClass, at: datetime) -> None:
        """Leave turns to those only who end before the head needs the kept room, where that is room enough."""
        state = self._cluster.groups[request_class.group_id].reservation
        if (
            request_class.longest is None
            and state is not None
            and state.at is not None
            and state.host.fits(request_class.shape)
        ):
            request_class.longest = state.at - at
            following = request_class.first()
            if following is not None:
                heappush(turns, (following[0], request_class))

    def _cannot_start(self, request_class: RequestClass, request: SessionRequest) -> bool:
        """Say whether a request that was refused before, and is not the head, cannot start: others were quicker."""
        if request_class.is_new or self._grown[request_class.group_id].fits(request_class.shape):
            return False
        head = self._cluster.groups[request_class.group_id].head
        return head is not None and head.id != request.id

    def _start(self, request: SessionRequest, at: datetime) -> Placement | None:
        placement = self._cluster.place(request, at)
        if placement is not None:
            if request.id in self._hypothetical_ids:
                self._cluster.end(request.group_id, request.id)
            self._grown[request.group_id].measure()
        return placement

    def _set_aside(self, entry: QueueEntry) -> None:
        request = entry[1]
        self._over_limit.setdefault((request.owner_id, request.project_id), []).append(entry)
        self.over_limit_ids.add(request.id)

    def _first(self, group_id: int) -> RequestClass:
        """Return those among whom is the first of all who wait for a group."""
        return min(self._classes[group_id].values(), key=attrgetter("first_key"))

    def _candidates(self, group_id: int, at: datetime) -> list[RequestClass]:
        """Return those among whom somebody might start now, and the first; drop an outdated reservation."""
        classes, group = self._classes[group_id], self._cluster.groups[group_id]
        if not classes:
            return []
        first, grown = self._first(group_id), self._grown[group_id]
        grown.measure()
        if not self._is_kept(first.head, grown, at):
            if group.reservation is not None:
                grown.add(group.reservation.host)
                grown.measure()
            group.clear_head()
        return [
            request_class
            for request_class in classes.values()
            if request_class is first or request_class.is_new or grown.fits(request_class.shape)
        ]

    def _drop_head(self, over_limit: SessionRequest, turns: list[Turn]) -> None:
        """Keep room no longer for somebody who is barred now; those who fit the room that was kept have turns."""
        group_id, group = over_limit.group_id, self._cluster.groups[over_limit.group_id]
        state = group.reservation
        if group.head is None or group.head.id != over_limit.id or state is None:
            return
        group.clear_head()
        self._grown[group_id].add(state.host)
        self._grown[group_id].measure()
        for request_class in self._classes[group_id].values():
            if request_class.queues and state.host.fits(request_class.shape):
                _take_turns(turns, request_class)

    def _is_kept(self, first: SessionRequest, grown: "GrownHosts", at: datetime) -> bool:
        """Say whether the reservation stands: who is first has it, still cannot start, and no hold has begun since."""
        group = self._cluster.groups[first.group_id]
        head = group.head
        if head is None or head.id != first.id or grown.fits(head.shape):
            return False
        if group.reservation is not None:
            return group.reservation.at is not None  # a hold may move to a better host
        return at < head.queued_at + group.rules.reservation_delay


class GrownHosts:
    """Rooms of a group that grew since its line was served last; nobody who was refused then fits elsewhere."""

    __slots__ = ("_most", "_rooms")

    def __init__(self) -> None:
        self._rooms: list[HostCapacity] = []
        self._most = (0, 0, 0)  # the largest of each: what exceeds it need not be held against every room

    def add(self, host: HostCapacity) -> None:
        """Note one more; `measure` before you ask."""
        if host not in self._rooms:
            self._rooms.append(host)

    def clear(self) -> None:
        """Forget them."""
        self._rooms.clear()
        self._most = (0, 0, 0)

    def measure(self) -> None:
        """Take in that rooms have changed."""
        if hosts := self._rooms:
            self._most = (
                max(host.cpu for host in hosts),
                max(host.memory for host in hosts),
                max(host.fgpu for host in hosts),
            )

    def fits(self, shape: Shape) -> bool:
        """Say whether one of them can take it."""
        cpu, memory, fgpu = self._most
        if shape.cpu > cpu or shape.memory > memory or shape.fgpu > fgpu:
            return False
        return any(host.fits(shape) for host in self._rooms)


def _take_turns(turns: list[Turn], request_class: RequestClass) -> None:
    """Let all of them have turns, from the first on."""
    request_class.longest = None
    heappush(turns, (request_class.first_key, request_class))
