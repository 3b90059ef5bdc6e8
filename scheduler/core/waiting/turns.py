"""In which order a pass serves classes of requests: by the queue, and behind a head by predicted run time. Pure."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from scheduler.core.cluster.group_state import GroupState
from scheduler.core.types import QueueOrder
from scheduler.core.waiting.request_class import QueueEntry, RequestClass, Turn


class Turns:
    """The classes that a pass has yet to serve, each in the turn of its next request."""

    __slots__ = ("_behind", "_heads", "_in_order")

    def __init__(self) -> None:
        """Begin without any, all groups by the order of the queue."""
        self._in_order: list[tuple[Turn, QueueEntry, RequestClass]] = []  # heap
        self._behind: list[tuple[Turn, QueueEntry, RequestClass]] = []  # heads: a heap, served after that
        self._heads: dict[int, str] = {}  # by group served by rank: the session of which no entry is behind; else ""

    def rank(self, group_id: int, group: GroupState) -> None:
        """Serve a group in FIFO order by predicted run time while it has a head, else in order."""
        head = group.head if group.rules.queue_order == QueueOrder.FIFO else None
        head_id = "" if head is None else head.id
        if self._heads.get(group_id, "") == head_id:
            return
        self._heads[group_id] = head_id
        moved: list[RequestClass] = []
        for heap in (self._in_order, self._behind):
            moved += [it for turn, _, it in heap if it.group_id == group_id and turn is it.turn]
            heap[:] = [each for each in heap if each[-1].group_id != group_id]
        self._add(moved)

    def begin(self, classes: Iterable[RequestClass]) -> None:
        """Serve all requests of these classes, from the first on."""
        classes = list(classes)
        for request_class in classes:
            request_class.longest = None
        self._add(classes)

    def _add(self, classes: Iterable[RequestClass]) -> None:
        """Serve the next requests of classes: heaps are made of many at once in less time than one by one."""
        for request_class in classes:
            is_behind, following = self._next(request_class)
            request_class.turn = None if following is None else following[0]
            if following is not None:
                (self._behind if is_behind else self._in_order).append((*following, request_class))
        heapify(self._in_order)
        heapify(self._behind)

    def push(self, request_class: RequestClass) -> bool:
        """Serve the next request of a class that is allowed in its turn; return False where there is none."""
        is_behind, following = self._next(request_class)
        if following is None:
            request_class.turn = None
            return False
        request_class.turn = following[0]
        heappush(self._behind if is_behind else self._in_order, (*following, request_class))
        return True

    def _next(self, request_class: RequestClass) -> tuple[bool, tuple[Turn, QueueEntry] | None]:
        """Return who is next of a class, and whether that is behind a head."""
        is_behind = False
        if (head_id := self._heads.get(request_class.group_id)) and (first := request_class.first):
            is_behind = request_class.longest is not None or first[1].id != head_id
        return is_behind, request_class.next(is_behind=is_behind)

    def pop(self) -> tuple[RequestClass, QueueEntry] | None:
        """Return the class whose turn it is, and its request; None after all."""
        for heap in (self._in_order, self._behind):
            while heap:
                turn, entry, request_class = heappop(heap)
                if turn is request_class.turn:  # not so what was pushed again since
                    request_class.turn = None
                    return request_class, entry
        return None
