"""The ports that some apps have to themselves: listened on as long as a route names them, or always."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from proxy.client_connection import ClientConnection
from proxy.data_plane import DataPlane

logger = logging.getLogger(__name__)


class PortListeners:
    """One listener for each port that a route of the plane has, and for those that are never left to others."""

    def __init__(self, plane: DataPlane, host: str, held: Collection[int]) -> None:
        self._plane = plane
        self._table = plane.authorizer.table
        self._host = host
        self._held = frozenset(held)
        self._servers: dict[int, asyncio.Server] = {}
        self._refused: set[int] = set()  # by the system; said once
        self._changed = asyncio.Event()
        self._table.on_change(self._changed.set)

    async def keep(self) -> None:
        """Open and close listeners as routes come and go, until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._update()
                await self._changed.wait()
        finally:
            for server in self._servers.values():
                server.close()

    async def _update(self) -> None:
        wanted = self._held | {route.listen_port for route in self._table if route.listen_port}
        for port in self._servers.keys() - wanted:
            self._servers.pop(port).close()
        self._refused &= wanted
        for port in wanted - self._servers.keys():
            await self._open(port)

    async def _open(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._servers[port] = await loop.create_server(
                lambda: ClientConnection(self._plane, port), self._host, port, reuse_port=True
            )
        except OSError as error:
            if port not in self._refused:
                logger.warning("no app can have port %s: %s", port, error)
            self._refused.add(port)


@asynccontextmanager
async def listening(plane: DataPlane, host: str, held: Collection[int] = ()) -> AsyncIterator[None]:
    """Listen on the ports of apps, and on those `held` for them, while the block runs."""
    task = asyncio.create_task(PortListeners(plane, host, held).keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
