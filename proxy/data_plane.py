"""The data plane of one process: what all its connections share, whichever carrier they come by."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from proxy import responses
from proxy.authorization import Decision, Network, Principal
from proxy.control_plane import ControlPlane
from proxy.headers import Header, RequestHead
from proxy.limits import ProxyLimits
from proxy.login_flow import ReservedRequest
from proxy.pending import PendingConnections, source_of
from proxy.responses import LocalResponse
from proxy.routes import ConnectionFilter, RouteTable
from proxy.upstream_connection import UpstreamConnection
from proxy.upstream_pool import UpstreamPool

DRAIN_POLL_SECONDS: Final = 0.1
Counted = TypeVar("Counted", int, str)
SWEEP_SECONDS: Final = 1.0  # how exact the deadlines of connections are


class Authorizer(Protocol):
    """Admission, or a gateway's."""

    table: RouteTable

    def authorize(self, request: RequestHead, peer: str, listen_port: int | None = None) -> Decision:
        """Return what to do with a request."""
        ...

    async def serve(self, reserved: ReservedRequest) -> LocalResponse:
        """Return the answer at a reserved path."""
        ...

    def response_headers(self, principal: Principal, headers: list[Header]) -> list[Header]:
        """Return the headers that the visitor gets."""
        ...


class ManagedConnection(Protocol):
    """A connection of a browser: what ends it from outside."""

    deadline: float  # loop time at which `expire` is called
    slot: "ConnectionSlot | None"  # None while nothing of an app goes through

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
class ConnectionSlot:
    """A visitor's connection, counted at its endpoint, its user and its address."""

    principal: Principal
    pool: UpstreamPool
    client: str
    is_busy: bool = False  # whether a request is under way; an idle connection needs no cutting


class DataPlane:
    """Connections, lanes and limits of a process; `start` and `stop` frame its life."""

    def __init__(
        self,
        authorizer: Authorizer,
        control_plane: ControlPlane,
        limits: ProxyLimits | None = None,
        app_connection: type[UpstreamConnection] = UpstreamConnection,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        """`fronts` are reverse proxies, to which no limit on strangers applies."""
        self.authorizer = authorizer
        self.limits = limits or ProxyLimits()
        self.pending = PendingConnections(self.limits, trusted_proxies)
        self.connections: set[ManagedConnection] = set()
        self._control_plane = control_plane
        self._app_connection = app_connection
        self._pools: dict[str, UpstreamPool] = {}
        self._users: Counter[int] = Counter()
        self._addresses: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None
        authorizer.table.on_cut(self._cut)

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
        for pool in self._pools.values():
            pool.clear()

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

    def acquire_slot(self, principal: Principal, client: str) -> ConnectionSlot | LocalResponse:
        """Return a seat at the visitor's endpoint, or why there is none."""
        pool, limits, source = self._pool(principal), self.limits, source_of(client)
        retry = (b"Retry-After", b"5")
        if pool.connections_open >= limits.per_endpoint:
            return responses.text(503, "Too many connections to this app are open.", retry, closes=True)
        if principal.user and self._users[principal.user] >= limits.per_user:
            return responses.text(429, "You have too many connections open.", retry, closes=True)
        if not principal.login and self._addresses[source] >= limits.per_anonymous_address:
            return responses.text(429, "Too many connections from your address are open.", retry, closes=True)
        pool.connections_open += 1
        self._users[principal.user] += 1
        if not principal.login:
            self._addresses[source] += 1
        return ConnectionSlot(principal, pool, client)

    def release_slot(self, slot: ConnectionSlot) -> None:
        """Give a seat back, once."""
        principal = slot.principal
        slot.pool.connections_open -= 1
        _count_down(self._users, principal.user)
        if not principal.login:
            _count_down(self._addresses, source_of(slot.client))

    def _pool(self, principal: Principal) -> UpstreamPool:
        route = principal.route
        pool = self._pools.get(route.label)
        if pool is None or (pool.route is not route and pool.route != route):
            if pool:
                pool.clear()
            pool = self._pools[route.label] = UpstreamPool(route, self.limits, self._app_connection)
        return pool

    def _cut(self, holds: ConnectionFilter) -> None:
        """End what goes through for the routes, log-ins and users meant."""
        for live in list(self.connections):
            slot = live.slot
            if slot and slot.is_busy and holds(slot.principal.route, slot.principal.login, slot.principal.user):
                live.cut()
        for label, pool in list(self._pools.items()):
            if holds(pool.route, "", 0):
                pool.clear()
                del self._pools[label]

    def _sweep(self) -> None:
        """Once a second: deadlines, cookies that ran out, idle connections, and who was active."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)
        now, clock = loop.time(), time.time()
        for live in list(self.connections):
            slot = live.slot
            if slot and slot.is_busy and slot.principal.expires_at <= clock:
                live.cut()
            elif live.deadline <= now:
                live.expire()
        for pool in self._pools.values():
            pool.sweep(now)
            if pool.is_used:
                pool.is_used = False
                self._control_plane.used(pool.route.session)


def _count_down(counter: Counter[Counted], key: Counted) -> None:
    """Count one less, and keep no zeros: addresses are many."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
