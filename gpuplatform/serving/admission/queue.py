"""Requests that wait for a slot, in an order that is fair between principals; data only, without tasks or clocks.

Start-time fair queueing of estimated CPU time (Goyal, Vin and Cheng, 1996), so that a flood of one principal delays
only itself; within a principal the cheapest request is first, and none overtakes a write. Where there is too much, the
request that goes is the last one of the principal that has most (longest queue drop: Suter et al., 1998).
"""

from bisect import insort
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Final

SLOTS_EACH: Final = 4  # of one principal at once, all but one of them long under way
MIN_COST_SECONDS: Final = 0.001  # that a request is counted with, so that estimates of nothing alternate too


@dataclass(eq=False)
class QueuedRequest:
    """A request that waits: whose it is, its estimated CPU time, and the bytes of its body."""

    principal: str
    cost_seconds: float
    size_bytes: int = 0
    is_write: bool = False  # what its principal asks for after it is to see what it does
    number: int = field(default_factory=count().__next__)  # in the order of arrival


_Place = tuple[int, float, int]  # of a request: the writes before it, its cost, and its number


@dataclass(eq=False)
class _Principal:
    """The requests of one principal; `virtual_seconds` is the start tag of its next, as fair queueing counts."""

    virtual_seconds: float
    waiting: list[tuple[_Place, QueuedRequest]] = field(default_factory=list)  # in their order
    writes: int = 0  # that have waited
    waiting_seconds: float = 0.0
    waiting_bytes: int = 0
    started: int = 0  # requests that have a slot
    computing: dict[QueuedRequest, float] = field(default_factory=dict)  # those not long under way: tags amid each
    started_seconds: float = 0.0

    def place_of(self, request: QueuedRequest) -> _Place:
        """Return the place of a request that arrives now: among those after the last write the cheapest is first."""
        if request.is_write:
            return self.writes + 1, 0.0, request.number
        return self.writes, request.cost_seconds, request.number


class AdmissionQueue:
    """The order in which requests get slots, and what is dropped beyond `max_requests` and `max_bytes`."""

    def __init__(self, slots: int, max_requests: int, max_bytes: int) -> None:
        self._free_slots = slots
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._principals: dict[str, _Principal] = {}
        self._virtual_seconds = 0.0
        self._waiting = 0
        self._waiting_bytes = 0

    @property
    def has_waiting(self) -> bool:
        """Whether any request waits."""
        return self._waiting > 0

    def wait_seconds(self, request: QueuedRequest) -> float:
        """Return the estimated time until the request would get a slot of one core, if it were added now.

        Of each other principal at most as much comes before it as its own principal has until it is done.
        """
        own = self._principals.get(request.principal)
        before = 0.0
        if own:
            place = own.place_of(request)
            before = own.started_seconds + sum(each.cost_seconds for its, each in own.waiting if its <= place)
        bound = before + request.cost_seconds
        others = (each for each in self._principals.values() if each is not own)
        return before + sum(min(bound, each.started_seconds + each.waiting_seconds) for each in others)

    def add(self, request: QueuedRequest) -> list[QueuedRequest]:
        """Have the request wait; return the requests that are dropped for want of room, which may be this one."""
        principal = self._principals.setdefault(request.principal, _Principal(self._virtual_seconds))
        if not principal.waiting:
            principal.virtual_seconds = max(principal.virtual_seconds, self._virtual_seconds)
        insort(principal.waiting, (principal.place_of(request), request))
        principal.writes += request.is_write
        self._count(principal, request, 1)
        dropped: list[QueuedRequest] = []
        while self._waiting > self._max_requests or self._waiting_bytes > self._max_bytes:
            dropped.append(self._most_waiting().waiting[-1][1])
            self.remove(dropped[-1])
        return dropped

    def take(self) -> QueuedRequest | None:
        """Give the next request a slot, and return it; None if none may start now.

        Threads of one process share one core. So a principal has one request under way, and beside another's only what
        has its turn before half of that, such as cheap requests; else a page would take as many times its time. A
        request that has been under way for long waits for something else, and holds nobody up.
        """
        earliest = min((tag for each in self._principals.values() for tag in each.computing.values()), default=inf)
        ready = [
            each
            for each in self._principals.values()
            if each.waiting and not each.computing and each.started < SLOTS_EACH and each.virtual_seconds < earliest
        ]
        if not ready or not self._free_slots:
            return None
        chosen = min(ready, key=lambda each: (each.started, each.virtual_seconds))
        _, request = chosen.waiting.pop(0)
        self._count(chosen, request, -1)
        self._free_slots -= 1
        chosen.started += 1
        chosen.computing[request] = chosen.virtual_seconds + max(request.cost_seconds, MIN_COST_SECONDS) / 2
        chosen.started_seconds += request.cost_seconds
        self._virtual_seconds = max(self._virtual_seconds, chosen.virtual_seconds)
        chosen.virtual_seconds += max(request.cost_seconds, MIN_COST_SECONDS)
        return request

    def remove(self, request: QueuedRequest) -> None:
        """Forget a request that waits, such as one whose client has left."""
        principal = self._principals[request.principal]
        principal.waiting = [each for each in principal.waiting if each[1] is not request]
        self._count(principal, request, -1)
        self._forget_idle(request.principal)

    def note_long(self, request: QueuedRequest) -> None:
        """Let the principal's next request start beside this one, which has had its slot for long."""
        self._principals[request.principal].computing.pop(request, None)

    def finish(self, request: QueuedRequest) -> None:
        """Take the slot of a request back."""
        principal = self._principals[request.principal]
        self._free_slots += 1
        principal.started -= 1
        principal.computing.pop(request, None)
        principal.started_seconds -= request.cost_seconds
        self._forget_idle(request.principal)

    def _count(self, principal: _Principal, request: QueuedRequest, sign: int) -> None:
        principal.waiting_seconds += sign * request.cost_seconds
        principal.waiting_bytes += sign * request.size_bytes
        self._waiting += sign
        self._waiting_bytes += sign * request.size_bytes

    def _most_waiting(self) -> _Principal:
        """Return the principal with most of what there is too much of."""
        if self._waiting_bytes > self._max_bytes:
            return max(self._principals.values(), key=lambda each: each.waiting_bytes)
        return max(self._principals.values(), key=lambda each: len(each.waiting))

    def _forget_idle(self, name: str) -> None:
        principal = self._principals[name]
        if not principal.waiting and not principal.started:
            del self._principals[name]
