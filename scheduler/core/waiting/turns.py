"""In which order a pass serves classes of requests: by the queue, and behind a head by predicted run time. Pure."""

from heapq import heappop, heappush

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
        self._heads: dict[int, str] = {}  # by group served by rank: the session of which no entry is behind the head

    def rank(self, group: GroupState) -> None:
        """Serve a group in FIFO order that has a head by predicted run time from here on: the shortest first."""
        if group.head is not None and group.rules.queue_order == QueueOrder.FIFO:
            self._heads[group.head.group_id] = group.head.id

    def begin(self, request_class: RequestClass) -> None:
        """Serve all requests of a class, from the first on."""
        request_class.longest = None
        self.push(request_class)

    def push(self, request_class: RequestClass) -> bool:
        """Serve the next request of a class that is allowed in its turn; return False where there is none."""
        is_behind = False
        if (head_id := self._heads.get(request_class.group_id)) is not None and (first := request_class.first):
            is_behind = request_class.longest is not None or first[1].id != head_id
        following = request_class.next(is_behind=is_behind)
        if following is None:
            request_class.turn = None
            return False
        request_class.turn = following[0]
        heappush(self._behind if is_behind else self._in_order, (*following, request_class))
        return True

    def pop(self) -> tuple[RequestClass, QueueEntry] | None:
        """Return the class whose turn it is, and its request; None after all."""
        while self._in_order:
            turn, entry, request_class = heappop(self._in_order)
            if turn is request_class.turn:  # not so what was pushed again since
                if self._heads.get(request_class.group_id, entry[1].id) == entry[1].id:
                    request_class.turn = None
                    return request_class, entry
                self.push(request_class)  # there is a head since
        while self._behind:
            turn, entry, request_class = heappop(self._behind)
            if turn is request_class.turn:
                request_class.turn = None
                return request_class, entry
        return None
