"""What an app proxy and a gateway serve, for uvicorn: the app proxy's connections alone. Does not load the pages."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from django.conf import settings
from django.core.management.base import BaseCommand, SystemCheckError
from uvicorn.config import STARTUP_FAILURE

from endpoints.data_plane import data_plane, gateway_plane, running
from endpoints.routing import ports
from endpoints.routing.feed import HostRoutes
from engine.engine import GATEWAY_PREFIX, Engine
from engine.gateway import EngineGateway
from engine.http import HEAD_LIMIT
from proxy.authorization.signing import Keys
from proxy.counters import ConnectionCounters
from proxy.data_plane import DataPlane
from proxy.http.asgi import Application, Receive, Scope, Send
from proxy.listener.app_ports import listening
from proxy.listener.client_connection import ClientConnection
from proxy.listener.dispatch import FirstRequestDispatcher
from resources.versions import VERSION_TAG

Served = tuple[Application, Callable[..., asyncio.Protocol]]

GATEWAY_DRAIN_SECONDS: Final = 1.0  # for which a gateway's connections go on at the end
GATEWAY_REQUEST_SECONDS: Final = 3.0  # for which its requests then do that stream nothing, such as a shell's start


class Lifespan:
    """ASGI middleware that enters `context` before the server starts, and leaves it when the server ends."""

    def __init__(self, context: AbstractAsyncContextManager[None], application: Application | None = None) -> None:
        self._context = context
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Leave all but the lifespan to the application."""
        if scope["type"] != "lifespan":
            assert self._application
            await self._application(scope, receive, send)
            return
        await receive()
        async with self._context:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def apps_served(plane: DataPlane, host: str, drain_seconds: float) -> AsyncIterator[None]:
    """Serve the apps of sessions, and open their ports at `host`; at the end websockets go on for `drain_seconds`."""
    async with running(plane):
        async with listening(plane, host, ports.held()):
            yield
        await plane.drain(settings.COMPUTE_DRAIN_SECONDS, drain_seconds)


def require_valid_settings(*tags: str) -> None:
    """End this process, and by the status its parent, where a system check with one of the tags, or any, fails."""
    try:
        BaseCommand().check(tags=tags or None)
    except SystemCheckError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(STARTUP_FAILURE)


def apps(counters: ConnectionCounters | None, host: str, drain_seconds: float) -> Served:
    """Return what `manage.py appproxy` serves."""
    require_valid_settings(VERSION_TAG)
    plane = data_plane(counters=counters)
    return Lifespan(apps_served(plane, host, drain_seconds)), lambda **_: ClientConnection(plane)


def gateway(counters: ConnectionCounters | None, keys: Keys, labels: Mapping[str, str]) -> Served:
    """Return what `manage.py gateway` serves: apps, and the engine's containers that have these labels."""
    plane = gateway_plane(keys, counters)
    engine_gateway = EngineGateway(Engine(settings.COMPUTE_DOCKER_URL), keys, settings.COMPUTE_HOST_NAME, labels)

    def choose(head: bytes) -> asyncio.Protocol:
        if head.partition(b" ")[2].startswith(GATEWAY_PREFIX.encode()):
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(HEAD_LIMIT), engine_gateway.serve)
        return ClientConnection(plane)

    return Lifespan(_gateway_served(plane, engine_gateway)), lambda **_: FirstRequestDispatcher(plane, choose)


@asynccontextmanager
async def _gateway_served(plane: DataPlane, engine_gateway: EngineGateway) -> AsyncIterator[None]:
    async with running(plane, HostRoutes()):
        yield
        await asyncio.gather(
            plane.drain(settings.COMPUTE_DRAIN_SECONDS, GATEWAY_DRAIN_SECONDS),
            engine_gateway.close(GATEWAY_DRAIN_SECONDS, GATEWAY_REQUEST_SECONDS),
        )
