"""Those of a line who fit in the same places. Pure."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from scheduler.core.terms import Request, Shape

Place = tuple[Any, ...]  # in the order to serve: comparable, and different for each
Entry = tuple[Place, Request]


class Peers:
    """Requests of one group, shape and avoided host: a queue for each time limit, as that is all they differ in.

    Where one of them finds no room open to all, none does; in kept room there may be some for those who end in time.
    """

    __slots__ = ("group_id", "is_new", "longest", "place", "queues", "shape")

    def __init__(self, request: Request) -> None:
        """Begin with what a request asks for, without anybody."""
        self.group_id = request.group_id
        self.shape: Shape = request.shape
        self.queues: dict[timedelta | None, list[Entry]] = {}  # in order; none is empty
        self.place: Place = ()  # of the first of all
        self.is_new = False  # somebody is new here, or no longer barred
        self.longest: timedelta | None = None  # only who runs no longer has a turn in this serving; None: everybody

    def __iter__(self) -> Iterator[Entry]:
        """Yield everybody, those of one time limit after the other."""
        for queue in self.queues.values():
            yield from queue

    def twin(self) -> "Peers":
        """Return the same requests in queues of their own, with nothing new."""
        twin: Peers = object.__new__(Peers)
        twin.group_id, twin.shape, twin.place = self.group_id, self.shape, self.place
        twin.queues = {duration: queue.copy() for duration, queue in self.queues.items()}
        twin.is_new, twin.longest = False, None
        return twin

    def add(self, place: Place, request: Request) -> None:
        """Put a request in its place."""
        queue = self.queues.get(request.duration)
        if queue is None:
            self.queues[request.duration] = [(place, request)]
        elif place < queue[-1][0]:
            insort(queue, (place, request))
        else:
            queue.append((place, request))
        if not self.place or place < self.place:
            self.place = place

    def remove(self, place: Place, request: Request) -> bool:
        """Take a request out; return whether it was there."""
        queue = self.queues.get(request.duration, [])
        position = bisect_left(queue, (place,))
        if position == len(queue) or queue[position][0] != place:
            return False
        del queue[position]
        if not queue:
            del self.queues[request.duration]
        if place == self.place:
            self._find_place()
        return True

    def pop(self, entry: Entry) -> Entry:
        """Take out the first of a time limit, and return the entry."""
        queue = self.queues[entry[1].duration]
        del queue[0]
        if not queue:
            del self.queues[entry[1].duration]
        if entry[0] == self.place:
            self._find_place()
        return entry

    @property
    def head(self) -> Request:
        """The first of all; there must be one."""
        return next(queue[0][1] for queue in self.queues.values() if queue[0][0] == self.place)

    def first(self) -> Entry | None:
        """Return the first of those who have a turn."""
        longest, found = self.longest, None
        if longest is None and len(self.queues) == 1:  # the usual case
            (queue,) = self.queues.values()
            return queue[0]
        for duration, queue in self.queues.items():
            if longest is None or (duration is not None and duration <= longest):
                entry = queue[0]
                if found is None or entry[0] < found[0]:
                    found = entry
        return found

    def _find_place(self) -> None:
        if len(self.queues) == 1:
            (queue,) = self.queues.values()
            self.place = queue[0][0]
        else:
            self.place = min((queue[0][0] for queue in self.queues.values()), default=())
