"""The connections to one endpoint: idle ones for the next request, and new ones."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from proxy.http.response_parser import ResponseParser
from proxy.limits import ProxyLimits
from proxy.routes import Route
from proxy.upstream.connection import UpstreamConnection

GATEWAY_IDLE_SECONDS: Final = 30.0  # gateways keep idle connections longer than this
WRITE_BUFFER_BYTES: Final = 256 * 1024  # above which a slow reader pauses its sender


class UpstreamPool:
    """The upstream connections of one route, and the counters that belong to it."""

    def __init__(self, route: Route, limits: ProxyLimits) -> None:
        self.route = route
        self.is_used = False  # since the control plane was last told
        self._loop = asyncio.get_running_loop()  # kept, since Python asks the system for it each time
        self._limits = limits
        self._idle: list[UpstreamConnection] = []
        self._idle_seconds = GATEWAY_IDLE_SECONDS if route.gateway else limits.idle_upstream_seconds

    def take_idle(self, now: float) -> UpstreamConnection | None:
        """Return the most recently used idle connection, None unless it is young enough to be alive.

        `now` is the loop's time in seconds.
        """
        if not self._idle:
            return None
        upstream = self._idle.pop()
        if now - upstream.idle_since < self._idle_seconds and not upstream.transport.is_closing():
            return upstream
        upstream.abort()
        self.close_idle()
        return None

    async def connect(self) -> UpstreamConnection:
        """Return a new connection. Raises OSError and TimeoutError."""
        host, port = self.target()
        limits = self._limits
        async with asyncio.timeout(limits.connect_seconds):
            transport, upstream = await self._loop.create_connection(
                lambda: UpstreamConnection(self, ResponseParser(limits.response_head_bytes)), host, port
            )
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        return upstream

    def target(self) -> tuple[str, int]:
        """Return host and port of the endpoint: its container's, or those of its host's gateway."""
        if not self.route.gateway:
            return self.route.address, self.route.port
        gateway = urlsplit(self.route.gateway)
        return gateway.hostname or "", gateway.port or 80

    def close_expired(self, now: float) -> None:
        """Close the connections that have been idle for too long; `now` is the loop's time in seconds."""
        expired = [each for each in self._idle if now - each.idle_since >= self._idle_seconds]
        for upstream in expired:
            self._idle.remove(upstream)
            upstream.abort()

    def close_idle(self) -> None:
        """Close all idle connections."""
        idle, self._idle = self._idle, []
        for upstream in idle:
            upstream.abort()

    def release(self, upstream: UpstreamConnection) -> None:
        """Keep a connection for the next request, or close it if enough are idle."""
        if len(self._idle) >= self._limits.idle_upstreams_per_endpoint:
            upstream.abort()
            return
        upstream.idle_since = self._loop.time()
        self._idle.append(upstream)

    def discard(self, upstream: UpstreamConnection) -> None:
        """Drop an idle connection that the app has closed."""
        if upstream in self._idle:
            self._idle.remove(upstream)
