"""Request classes: waiting requests of equal shape and constraints. Pure."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from scheduler.core.types import BackfillRank, SessionRequest, Shape

QueueKey = tuple[Any, ...]  # position in the order to serve: comparable, and distinct for each request
QueueEntry = tuple[QueueKey, SessionRequest]
Kind = tuple[BackfillRank, timedelta | None]  # turn behind a head, and time limit
Turn = tuple[Any, ...]  # key, or behind a head rank and key in one, as nested tuples take longer to compare


class RequestClass:
    """Requests of one group, shape and avoided hosts, with a queue for each time limit and backfill rank.

    If one of them fits on no unreserved host, none does. On the reserved host, those that end in time may still fit.
    """

    __slots__ = ("_least", "first", "group_id", "is_new", "longest", "queues", "shape", "turn")

    def __init__(self, request: SessionRequest) -> None:
        """Take the class of a request; the class is empty."""
        self.group_id = request.group_id
        self.shape: Shape = request.shape
        self.queues: dict[Kind, list[QueueEntry]] = {}  # each ascending; none is empty
        self.first: QueueEntry | None = None  # of the least key of all queues
        self._least: tuple[Turn, QueueEntry] | None = None  # next behind a head, whatever the time limit, if known
        self.turn: Turn | None = None  # in which a pass will serve the class: another one is outdated
        self.is_new = False  # has a request that is new, or no longer above a limit
        self.longest: timedelta | None = None  # in this pass only time limits up to this are served; None: all

    def __iter__(self) -> Iterator[QueueEntry]:
        """Yield all entries, one queue after the other."""
        for queue in self.queues.values():
            yield from queue

    def copy(self) -> "RequestClass":
        """Return a copy with queues of its own, in which nothing is new."""
        copy: RequestClass = object.__new__(RequestClass)
        copy.group_id, copy.shape, copy.first, copy._least = self.group_id, self.shape, self.first, self._least
        copy.queues = {kind: queue.copy() for kind, queue in self.queues.items()}
        copy.is_new, copy.longest, copy.turn = False, None, None
        return copy

    def add(self, key: QueueKey, request: SessionRequest) -> None:
        """Insert a request by its key."""
        entry = key, request
        kind = request.backfill_rank, request.duration
        queue = self.queues.get(kind)
        if queue is None:
            self.queues[kind] = [entry]
        elif key < queue[-1][0]:
            insort(queue, entry)
        else:
            queue.append(entry)
        self._least = None
        if self.first is None or key < self.first[0]:
            self.first = entry

    def remove(self, key: QueueKey, request: SessionRequest) -> bool:
        """Remove a request; return whether it was there."""
        kind = request.backfill_rank, request.duration
        queue = self.queues.get(kind, [])
        position = bisect_left(queue, (key,))
        if position == len(queue) or queue[position][0] != key:
            return False
        self._remove_at(position, kind)
        return True

    def pop(self, entry: QueueEntry) -> QueueEntry:
        """Remove an entry that is the first of its queue, and return it."""
        self._remove_at(0, (entry[1].backfill_rank, entry[1].duration))
        return entry

    @property
    def head(self) -> SessionRequest:
        """Request of the least key; the class must not be empty."""
        assert self.first is not None
        return self.first[1]

    def next(self, *, is_behind: bool) -> tuple[Turn, QueueEntry] | None:
        """Return who is next of those with a time limit up to `longest`, and when: by key, or behind a head by rank."""
        longest = self.longest
        if longest is None:
            known = self._least if is_behind else self.first and (self.first[0], self.first)
            if known is not None:
                return known
        found: tuple[BackfillRank | None, QueueEntry] | None = None
        for (rank, duration), queue in self.queues.items():
            if longest is None or (duration is not None and duration <= longest):
                turn = rank if is_behind else None, queue[0]
                if found is None or turn < found:
                    found = turn
        if found is None:
            return None
        first, entry = found
        if first is None:
            return entry[0], entry
        following = (*first, *entry[0]), entry
        if longest is None:
            self._least = following
        return following

    def _remove_at(self, position: int, kind: Kind) -> None:
        queue = self.queues[kind]
        entry = queue.pop(position)
        if not queue:
            del self.queues[kind]
        self._least = None
        if entry is self.first:
            self.first = min((queue[0] for queue in self.queues.values()), default=None)
