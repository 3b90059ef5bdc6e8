"""The connections to one endpoint: those that wait for the next request, and the way to a new one."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from proxy.app_connection import AppConnection
from proxy.limits import Limits
from proxy.routes import Route

GATEWAY_SPARE_SECONDS: Final = 30.0  # our own server at the other end keeps idle connections longer
WRITE_AHEAD: Final = 256 * 1024  # bytes that wait for a slow reader in this process


class Lane:
    """What the data plane keeps for one route."""

    def __init__(self, route: Route, limits: Limits, kind: type[AppConnection]) -> None:
        self.route = route
        self.is_used = False  # since the authority was last told
        self.seats = 0  # connections of browsers
        self._limits = limits
        self._kind = kind
        self._spares: list[AppConnection] = []
        self._spare_seconds = GATEWAY_SPARE_SECONDS if route.gateway else limits.spare_seconds

    def take(self, now: float) -> AppConnection | None:
        """Return the connection that was idle for the shortest time, None if there is none that is surely alive."""
        spares = self._spares
        if not spares:
            return None
        spare = spares.pop()
        if now - spare.idle_since < self._spare_seconds and not spare.transport.is_closing():
            return spare
        spare.abort()
        self.clear()
        return None

    async def dial(self) -> AppConnection:
        """Return a new connection. Raises OSError and TimeoutError."""
        host, port = self.target()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limits.connect_seconds):
            transport, app = await loop.create_connection(
                lambda: self._kind(self, self._limits.answer_head_bytes), host, port
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
        old = [spare for spare in self._spares if now - spare.idle_since >= self._spare_seconds]
        for spare in old:
            self._spares.remove(spare)
            spare.abort()

    def clear(self) -> None:
        """End all idle connections."""
        spares, self._spares = self._spares, []
        for spare in spares:
            spare.abort()

    def give_back(self, app: AppConnection) -> None:
        """Keep a connection for the next request."""
        if len(self._spares) >= self._limits.spare_connections:
            app.abort()
            return
        app.idle_since = asyncio.get_running_loop().time()
        self._spares.append(app)

    def forget(self, app: AppConnection) -> None:
        """Drop an idle connection that the app has ended."""
        if app in self._spares:
            self._spares.remove(app)
