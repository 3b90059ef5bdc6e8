"""Request classes: waiting requests of equal shape and constraints. Pure."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from scheduler.core.types import SessionRequest, Shape

QueueKey = tuple[Any, ...]  # position in the order to serve: comparable, and distinct for each request
QueueEntry = tuple[QueueKey, SessionRequest]


class RequestClass:
    """Requests of one group, shape and avoided hosts, with a queue for each time limit: they differ in nothing else.

    If one of them fits on no unreserved host, none does. On the reserved host, those that end in time may still fit.
    """

    __slots__ = ("first_key", "group_id", "is_new", "longest", "queues", "shape")

    def __init__(self, request: SessionRequest) -> None:
        """Take the class of a request; the class is empty."""
        self.group_id = request.group_id
        self.shape: Shape = request.shape
        self.queues: dict[timedelta | None, list[QueueEntry]] = {}  # by time limit, each ascending; none is empty
        self.first_key: QueueKey = ()  # least key of all queues
        self.is_new = False  # has a request that is new, or no longer above a limit
        self.longest: timedelta | None = None  # in this pass only time limits up to this are served; None: all

    def __iter__(self) -> Iterator[QueueEntry]:
        """Yield all entries, one queue after the other."""
        for queue in self.queues.values():
            yield from queue

    def copy(self) -> "RequestClass":
        """Return a copy with queues of its own, in which nothing is new."""
        copy: RequestClass = object.__new__(RequestClass)
        copy.group_id, copy.shape, copy.first_key = self.group_id, self.shape, self.first_key
        copy.queues = {duration: queue.copy() for duration, queue in self.queues.items()}
        copy.is_new, copy.longest = False, None
        return copy

    def add(self, key: QueueKey, request: SessionRequest) -> None:
        """Insert a request by its key."""
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
        """Remove a request; return whether it was there."""
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
        """Remove an entry that is the first of its queue, and return it."""
        queue = self.queues[entry[1].duration]
        del queue[0]
        if not queue:
            del self.queues[entry[1].duration]
        if entry[0] == self.first_key:
            self._update_first_key()
        return entry

    @property
    def head(self) -> SessionRequest:
        """Request of the least key; the class must not be empty."""
        return next(queue[0][1] for queue in self.queues.values() if queue[0][0] == self.first_key)

    def first(self) -> QueueEntry | None:
        """Return the entry of the least key among those with a time limit up to `longest`; None if there is none."""
        longest, found = self.longest, None
        if longest is None and len(self.queues) == 1:  # the most frequent case
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
