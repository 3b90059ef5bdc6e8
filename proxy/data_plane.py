"""The data plane of one process: what all its connections share."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.authorization.control_plane import ControlPlane
from proxy.authorization.decisions import AnyPrincipal, Decision, Deferred, Principal, ServicePrincipal, UpstreamFailure
from proxy.authorization.networks import Network
from proxy.balancing.balancer import Balancer
from proxy.balancing.balancers import Balancers
from proxy.counters import ConnectionCounters, LocalCounters
from proxy.http import responses
from proxy.http.headers import Header, RequestHead
from proxy.http.responses import LocalResponse
from proxy.limits import ProxyLimits
from proxy.pending import RETRY_AFTER, PendingConnections, source_of
from proxy.routes import ConnectionAccess, ConnectionFilter, Route, RouteTable
from proxy.upstream.pool import UpstreamPool

DRAIN_POLL_SECONDS: Final = 0.1
SWEEP_SECONDS: Final = 1.0  # the precision of the connections' deadlines


class Authorizer(Protocol):
    """Decides about requests: `BrowserAuthorizer`, or `GatewayAuthorizer` in a gateway."""

    table: RouteTable

    def authorize(self, request: RequestHead, peer: str, listen_port: int | None = None) -> Decision:
        """Return what to do with a request."""
        ...

    async def serve(self, deferred: Deferred) -> LocalResponse:
        """Return the response at a reserved path."""
        ...

    def reaches(self, route: Route) -> bool:
        """Return whether the route leads where apps may be."""
        ...

    def failed(self, failure: UpstreamFailure) -> LocalResponse:
        """Return the response where the app has sent none."""
        ...

    def unreachable(self, request: RequestHead, principal: AnyPrincipal, *, is_silent: bool) -> LocalResponse:
        """Return the response where the app's port refuses connections, or does not even do that (`is_silent`)."""
        ...

    def response_headers(self, principal: AnyPrincipal, headers: list[Header]) -> list[Header]:
        """Return the headers that the client receives of an app's response."""
        ...


class ManagedConnection(Protocol):
    """A client's connection, as the data plane ends it."""

    deadline: float  # loop time at which `expire` is called
    is_websocket: bool
    slot: "ConnectionSlot | None"  # None while it has not been authorized

    def expire(self) -> None:
        """Handle the passing of the deadline."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...

    def shut_down(self) -> None:
        """Close as soon as no response is under way."""
        ...


class Leaving(Protocol):
    """What is under way at a replica."""

    def leave(self) -> None:
        """Count it no longer; no-op if that was done already."""
        ...


@dataclass(slots=True, eq=False)
class ConnectionSlot:
    """A connection as counted at its endpoint or service, its user and its address."""

    principal: AnyPrincipal
    pool: UpstreamPool | None  # None: no replica of the service serves it now
    client: str  # IP address
    balancer: Balancer | None = None  # of the service, None at an endpoint
    turn: "Leaving | None" = None  # of the websocket that it has become, at a service
    is_busy: bool = False  # a request is under way; an idle connection need not be aborted when access ends

    @property
    def endpoint_key(self) -> str:
        """What the connections of its endpoint or service are counted by."""
        return f"endpoint {self.principal.route.label}"

    @property
    def user_key(self) -> str:
        """What the connections of its user are counted by."""
        return f"user {self.principal.user}"

    @property
    def address_key(self) -> str:
        """What the anonymous connections of its address are counted by."""
        return f"anonymous {source_of(self.client)}"

    @property
    def access(self) -> ConnectionAccess:
        """What it is used for now."""
        principal, route = self.principal, self.pool.route if self.pool else None
        if isinstance(principal, Principal):
            return ConnectionAccess(route, principal.login, principal.user)
        return ConnectionAccess(route, principal.login, principal.user, principal.route.label, principal.host)

    def counter_keys(self) -> tuple[str, ...]:
        """Return all keys that it is counted by."""
        return (self.endpoint_key, self.user_key) + (() if self.principal.login else (self.address_key,))


class DataPlane:
    """The connections, upstream pools and limits of a process, between `start` and `stop`."""

    def __init__(
        self,
        authorizer: Authorizer,
        control_plane: ControlPlane,
        limits: ProxyLimits | None = None,
        trusted_proxies: Sequence[Network] = (),
        counters: ConnectionCounters | None = None,
    ) -> None:
        """Pending connections of `trusted_proxies` are not limited. `counters` are those of all processes together."""
        self.authorizer = authorizer
        self.limits = limits or ProxyLimits()
        self.counters = counters or LocalCounters()
        self.pending = PendingConnections(self.limits, trusted_proxies, self.counters)
        self.connections: set[ManagedConnection] = set()
        self._control_plane = control_plane
        self._pools: dict[str, UpstreamPool] = {}
        self._balancers = Balancers(
            authorizer.table, self.counters, self.limits, authorizer.reaches, self.pool, control_plane.wake
        )
        self._sweeping: asyncio.TimerHandle | None = None
        authorizer.table.on_revocation(self._abort_matching)

    def start(self) -> None:
        """Begin to watch deadlines, in the running loop; no-op if that was done already."""
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def stop(self) -> None:
        """Close all connections at once."""
        if self._sweeping:
            self._sweeping.cancel()
            self._sweeping = None
        for connection in list(self.connections):
            connection.abort()
        for pool in self._pools.values():
            pool.close_idle()

    def shut_down(self) -> None:
        """Close idle connections now, and others when the response under way is complete; websockets go on."""
        for connection in list(self.connections):
            connection.shut_down()

    async def drain(self, seconds: float, websocket_seconds: float) -> None:
        """Shut down; return when all connections are closed, or each has had its time: the longer for responses."""
        self.shut_down()
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def goes_on(connection: ManagedConnection) -> bool:
            return loop.time() - begun < (websocket_seconds if connection.is_websocket else seconds)

        while any(map(goes_on, self.connections)):
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    def acquire_slot(self, principal: AnyPrincipal, client: str) -> ConnectionSlot | LocalResponse:
        """Return a slot at the principal's endpoint, or the response that names the limit which is reached."""
        limits, counters = self.limits, self.counters
        if isinstance(principal, ServicePrincipal):
            most, slot = limits.connections_per_service, ConnectionSlot(principal, None, client)
            slot.balancer = self._balancers.of(principal.route)
        else:
            most, slot = limits.connections_per_endpoint, ConnectionSlot(principal, self.pool(principal.route), client)
        if counters.count(slot.endpoint_key) >= most:
            return responses.text(503, "Too many connections to this app are open.", RETRY_AFTER, closes=True)
        if principal.user and counters.count(slot.user_key) >= limits.connections_per_user:
            return responses.text(429, "You have too many connections open.", RETRY_AFTER, closes=True)
        if not principal.login and counters.count(slot.address_key) >= limits.connections_per_anonymous_address:
            return responses.text(429, "Too many connections from your address are open.", RETRY_AFTER, closes=True)
        for key in slot.counter_keys():
            counters.add(key)
        return slot

    def release_slot(self, slot: ConnectionSlot) -> None:
        """Return a slot, once."""
        if slot.turn:
            slot.turn.leave()
        for key in slot.counter_keys():
            self.counters.remove(key)

    def pool(self, route: Route) -> UpstreamPool:
        """Return the upstream connections of a route."""
        pool = self._pools.get(route.label)
        if pool is None or (pool.route is not route and pool.route != route):
            if pool:
                pool.close_idle()
            pool = self._pools[route.label] = UpstreamPool(route, self.limits)
        return pool

    def _abort_matching(self, matches: ConnectionFilter) -> None:
        """Abort the connections of the routes, logins and users whose access has ended."""
        for connection in list(self.connections):
            slot = connection.slot
            if slot and slot.is_busy and matches(slot.access):
                connection.abort()
        for label, pool in list(self._pools.items()):
            if matches(ConnectionAccess(pool.route, "", 0)):
                pool.close_idle()
                del self._pools[label]

    def _sweep(self) -> None:
        """Enforce deadlines and the expiry of cookies, close idle upstreams and report activity, once a second."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)
        now, unix_seconds = loop.time(), time.time()
        for connection in list(self.connections):
            slot = connection.slot
            if slot and slot.is_busy and slot.principal.expires_at <= unix_seconds:
                connection.abort()
            elif connection.deadline <= now:
                connection.expire()
        for pool in self._pools.values():
            pool.close_expired(now)
            if pool.is_used:
                pool.is_used = False
                self._control_plane.used(pool.route.session)
        figures = self._balancers.figures()
        if figures or self.authorizer.table.services:
            self._control_plane.served(figures)
        self._balancers.report(self._control_plane.metered)
