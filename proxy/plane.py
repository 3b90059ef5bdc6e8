"""The data plane of one process: what all its connections share, whichever carrier they come by."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from proxy import answers
from proxy.admission import Judgement, Network, Visitor
from proxy.answers import Answer
from proxy.app_connection import AppConnection
from proxy.arrivals import Arrivals, source_of
from proxy.authority import Authority
from proxy.handoff import Reserved
from proxy.heads import Pair, Request
from proxy.lanes import Lane
from proxy.limits import Limits
from proxy.routes import Holds, RouteTable

DRAIN_POLL_SECONDS: Final = 0.1
Counted = TypeVar("Counted", int, str)
SWEEP_SECONDS: Final = 1.0  # how exact the deadlines of connections are


class Judge(Protocol):
    """Admission, or a gateway's."""

    table: RouteTable

    def judge(self, request: Request, peer: str, listen_port: int | None = None) -> Judgement:
        """Return what to do with a request."""
        ...

    async def serve(self, reserved: Reserved) -> Answer:
        """Return the answer at a reserved path."""
        ...

    def answer_headers(self, visitor: Visitor, headers: list[Pair]) -> list[Pair]:
        """Return the headers that the visitor gets."""
        ...


class Live(Protocol):
    """A connection of a browser: what ends it from outside."""

    deadline: float  # loop time at which `expire` is called
    seat: "Seat | None"  # None while nothing of an app goes through

    def expire(self) -> None:
        """Act on the deadline."""
        ...

    def cut(self) -> None:
        """End at once."""
        ...

    def shut_down(self) -> None:
        """End as soon as nothing is lost by it."""
        ...


@dataclass(slots=True, eq=False)
class Seat:
    """A visitor's connection, counted at its endpoint, its user and its address."""

    visitor: Visitor
    lane: Lane
    client: str
    is_busy: bool = False  # whether a request is under way; an idle connection needs no cutting


class DataPlane:
    """Connections, lanes and limits of a process; `start` and `stop` frame its life."""

    def __init__(
        self,
        admission: Judge,
        authority: Authority,
        limits: Limits | None = None,
        app_connection: type[AppConnection] = AppConnection,
        fronts: Sequence[Network] = (),
    ) -> None:
        """`fronts` are reverse proxies, to which no limit on strangers applies."""
        self.admission = admission
        self.limits = limits or Limits()
        self.arrivals = Arrivals(self.limits, fronts)
        self.connections: set[Live] = set()
        self._authority = authority
        self._app_connection = app_connection
        self._lanes: dict[str, Lane] = {}
        self._users: Counter[int] = Counter()
        self._addresses: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None
        admission.table.on_cut(self._cut)

    def start(self) -> None:
        """Begin to watch deadlines; to be called in the running loop. Calling it again changes nothing."""
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def stop(self) -> None:
        """End all connections."""
        if self._sweeping:
            self._sweeping.cancel()
            self._sweeping = None
        for live in list(self.connections):
            live.cut()
        for lane in self._lanes.values():
            lane.clear()

    def shut_down(self) -> None:
        """End what is idle now, and what is being answered when its answer is whole; websockets go on."""
        for live in list(self.connections):
            live.shut_down()

    async def drain(self, seconds: float) -> None:
        """Return when all connections have ended, or after so many seconds."""
        self.shut_down()
        deadline = asyncio.get_running_loop().time() + seconds
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    def sit(self, visitor: Visitor, client: str) -> Seat | Answer:
        """Return a seat at the visitor's endpoint, or why there is none."""
        lane, limits, source = self._lane(visitor), self.limits, source_of(client)
        retry = (b"Retry-After", b"5")
        if lane.seats >= limits.per_endpoint:
            return answers.text(503, "Too many connections to this app are open.", retry, closes=True)
        if visitor.user and self._users[visitor.user] >= limits.per_user:
            return answers.text(429, "You have too many connections open.", retry, closes=True)
        if not visitor.login and self._addresses[source] >= limits.per_anonymous_address:
            return answers.text(429, "Too many connections from your address are open.", retry, closes=True)
        lane.seats += 1
        self._users[visitor.user] += 1
        if not visitor.login:
            self._addresses[source] += 1
        return Seat(visitor, lane, client)

    def rise(self, seat: Seat) -> None:
        """Give a seat back, once."""
        visitor = seat.visitor
        seat.lane.seats -= 1
        _count_down(self._users, visitor.user)
        if not visitor.login:
            _count_down(self._addresses, source_of(seat.client))

    def _lane(self, visitor: Visitor) -> Lane:
        route = visitor.route
        lane = self._lanes.get(route.label)
        if lane is None or (lane.route is not route and lane.route != route):
            if lane:
                lane.clear()
            lane = self._lanes[route.label] = Lane(route, self.limits, self._app_connection)
        return lane

    def _cut(self, holds: Holds) -> None:
        """End what goes through for the routes, log-ins and users meant."""
        for live in list(self.connections):
            seat = live.seat
            if seat and seat.is_busy and holds(seat.visitor.route, seat.visitor.login, seat.visitor.user):
                live.cut()
        for label, lane in list(self._lanes.items()):
            if holds(lane.route, "", 0):
                lane.clear()
                del self._lanes[label]

    def _sweep(self) -> None:
        """Once a second: deadlines, cookies that ran out, idle connections, and who was active."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)
        now, clock = loop.time(), time.time()
        for live in list(self.connections):
            seat = live.seat
            if seat and seat.is_busy and seat.visitor.expires_at <= clock:
                live.cut()
            elif live.deadline <= now:
                live.expire()
        for lane in self._lanes.values():
            lane.sweep(now)
            if lane.is_used:
                lane.is_used = False
                self._authority.used(lane.route.session)


def _count_down(counter: Counter[Counted], key: Counted) -> None:
    """Count one less, and keep no zeros: addresses are many."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
