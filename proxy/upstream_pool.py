"""The connections to one endpoint: those that wait for the next request, and the way to a new one."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from proxy.limits import ProxyLimits
from proxy.routes import Route
from proxy.upstream_connection import UpstreamConnection

GATEWAY_IDLE_SECONDS: Final = 30.0  # our own server at the other end keeps idle connections longer
WRITE_AHEAD: Final = 256 * 1024  # bytes that wait for a slow reader in this process


class UpstreamPool:
    """What the data plane keeps for one route."""

    def __init__(self, route: Route, limits: ProxyLimits, kind: type[UpstreamConnection]) -> None:
        self.route = route
        self.is_used = False  # since the authority was last told
        self.connections_open = 0  # connections of browsers
        self._limits = limits
        self._kind = kind
        self._idle: list[UpstreamConnection] = []
        self._idle_seconds = GATEWAY_IDLE_SECONDS if route.gateway else limits.idle_upstream_seconds

    def take_idle(self, now: float) -> UpstreamConnection | None:
        """Return the connection that was idle for the shortest time, None if there is none that is surely alive."""
        idle_connections = self._idle
        if not idle_connections:
            return None
        idle = idle_connections.pop()
        if now - idle.idle_since < self._idle_seconds and not idle.transport.is_closing():
            return idle
        idle.abort()
        self.clear()
        return None

    async def connect(self) -> UpstreamConnection:
        """Return a new connection. Raises OSError and TimeoutError."""
        host, port = self.target()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limits.connect_seconds):
            transport, app = await loop.create_connection(
                lambda: self._kind(self, self._limits.response_head_bytes), host, port
            )
        transport.set_write_buffer_limits(high=WRITE_AHEAD)
        return app

    def target(self) -> tuple[str, int]:
        """Return where the endpoint is reached: its container, or the gateway of its host."""
        if not self.route.gateway:
            return self.route.address, self.route.port
        gateway = urlsplit(self.route.gateway)
        return gateway.hostname or "", gateway.port or 80

    def sweep(self, now: float) -> None:
        """End the connections that were idle for too long."""
        old = [idle for idle in self._idle if now - idle.idle_since >= self._idle_seconds]
        for idle in old:
            self._idle.remove(idle)
            idle.abort()

    def clear(self) -> None:
        """End all idle connections."""
        idle_connections, self._idle = self._idle, []
        for idle in idle_connections:
            idle.abort()

    def release(self, app: UpstreamConnection) -> None:
        """Keep a connection for the next request."""
        if len(self._idle) >= self._limits.idle_upstream_connections:
            app.abort()
            return
        app.idle_since = asyncio.get_running_loop().time()
        self._idle.append(app)

    def discard(self, app: UpstreamConnection) -> None:
        """Drop an idle connection that the app has ended."""
        if app in self._idle:
            self._idle.remove(app)
