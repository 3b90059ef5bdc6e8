"""Listeners at the ports of single apps: open while a route names the port, or always where ports are reserved."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from proxy.data_plane import DataPlane
from proxy.listener.client_connection import ClientConnection

logger = logging.getLogger(__name__)


class PortListeners:
    """One listener for the port of each route that has one, and for each reserved port."""

    def __init__(self, plane: DataPlane, host: str, reserved_ports: Collection[int]) -> None:
        self._plane = plane
        self._table = plane.authorizer.table
        self._host = host
        self._reserved_ports = frozenset(reserved_ports)
        self._servers: dict[int, asyncio.Server] = {}
        self._unavailable: set[int] = set()  # ports that the system refused, which was logged
        self._changed = asyncio.Event()
        self._table.on_change(self._changed.set)

    async def run(self) -> None:
        """Open and close listeners as routes change, until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._update()
                await self._changed.wait()
        finally:
            for server in self._servers.values():
                server.close()

    async def _update(self) -> None:
        wanted = self._reserved_ports | self._table.listen_ports
        for port in self._servers.keys() - wanted:
            self._servers.pop(port).close()
        self._unavailable &= wanted
        for port in wanted - self._servers.keys():
            await self._open(port)

    async def _open(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._servers[port] = await loop.create_server(
                lambda: ClientConnection(self._plane, port), self._host, port, reuse_port=True
            )
        except OSError as error:
            if port not in self._unavailable:
                logger.warning("no app can have port %s: %s", port, error)
            self._unavailable.add(port)


@asynccontextmanager
async def listening(plane: DataPlane, host: str, reserved_ports: Collection[int] = ()) -> AsyncIterator[None]:
    """Listen at the ports of routes and at the reserved ones while the block runs."""
    task = asyncio.create_task(PortListeners(plane, host, reserved_ports).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
