"""Those of a line who fit in the same places. Pure."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from scheduler.core.types import SessionRequest, Shape

QueueKey = tuple[Any, ...]  # in the order to serve: comparable, and different for each
QueueEntry = tuple[QueueKey, SessionRequest]


class RequestClass:
    """Requests of one group, shape and avoided host: a queue for each time limit, as that is all they differ in.

    Where one of them finds no room open to all, none does; in kept room there may be some for those who end in time.
    """

    __slots__ = ("first_key", "group_id", "is_new", "longest", "queues", "shape")

    def __init__(self, request: SessionRequest) -> None:
        """Begin with what a request asks for, without anybody."""
        self.group_id = request.group_id
        self.shape: Shape = request.shape
        self.queues: dict[timedelta | None, list[QueueEntry]] = {}  # in order; none is empty
        self.first_key: QueueKey = ()  # of the first of all
        self.is_new = False  # somebody is new here, or no longer barred
        self.longest: timedelta | None = None  # only who runs no longer has a turn in this serving; None: everybody

    def __iter__(self) -> Iterator[QueueEntry]:
        """Yield everybody, those of one time limit after the other."""
        for queue in self.queues.values():
            yield from queue

    def copy(self) -> "RequestClass":
        """Return the same requests in queues of their own, with nothing new."""
        copy: RequestClass = object.__new__(RequestClass)
        copy.group_id, copy.shape, copy.first_key = self.group_id, self.shape, self.first_key
        copy.queues = {duration: queue.copy() for duration, queue in self.queues.items()}
        copy.is_new, copy.longest = False, None
        return copy

    def add(self, key: QueueKey, request: SessionRequest) -> None:
        """Put a request in its place."""
        queue = self.queues.get(request.duration)
        if queue is None:
            self.queues[request.duration] = [(key, request)]
        elif key < queue[-1][0]:
            insort(queue, (key, request))
        else:
            queue.append((key, request))
        if not self.first_key or key < self.first_key:
            self.first_key = key

    def remove(self, key: QueueKey, request: SessionRequest) -> bool:
        """Take a request out; return whether it was there."""
        queue = self.queues.get(request.duration, [])
        position = bisect_left(queue, (key,))
        if position == len(queue) or queue[position][0] != key:
            return False
        del queue[position]
        if not queue:
            del self.queues[request.duration]
        if key == self.first_key:
            self._update_first_key()
        return True

    def pop(self, entry: QueueEntry) -> QueueEntry:
        """Take out the first of a time limit, and return the entry."""
        queue = self.queues[entry[1].duration]
        del queue[0]
        if not queue:
            del self.queues[entry[1].duration]
        if entry[0] == self.first_key:
            self._update_first_key()
        return entry

    @property
    def head(self) -> SessionRequest:
        """The first of all; there must be one."""
        return next(queue[0][1] for queue in self.queues.values() if queue[0][0] == self.first_key)

    def first(self) -> QueueEntry | None:
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

    def _update_first_key(self) -> None:
        if len(self.queues) == 1:
            (queue,) = self.queues.values()
            self.first_key = queue[0][0]
        else:
            self.first_key = min((queue[0][0] for queue in self.queues.values()), default=())
