"""What a web process and an app proxy serve: the application and the protocol of connections, for uvicorn."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from endpoints import ports
from endpoints.data_plane import data_plane, running
from gpuplatform.asgi import platform_with
from proxy.asgi import Application
from proxy.asgi_request import Receive, Scope, Send
from proxy.client_connection import ClientConnection
from proxy.counters import ConnectionCounters
from proxy.data_plane import DataPlane
from proxy.dispatch import PlatformOnly, uvicorn_protocol
from proxy.listeners import listening
from sessions.app_addresses import site

Served = tuple[Application, Callable[..., asyncio.Protocol]]


class DataPlaneLifespan:
    """ASGI middleware that runs the data plane as long as the server."""

    def __init__(self, application: Application | None, plane: DataPlane, host: str, drain_seconds: float) -> None:
        self._application = application
        self._plane = plane
        self._host = host
        self._drain_seconds = drain_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the data plane between the events of the lifespan; leave all else to the application."""
        if scope["type"] != "lifespan":
            assert self._application
            await self._application(scope, receive, send)
            return
        await receive()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running(self._plane))
            listeners = await stack.enter_async_context(AsyncExitStack())
            await listeners.enter_async_context(listening(self._plane, self._host, ports.held()))
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await listeners.aclose()
            await self._plane.drain(self._drain_seconds)
        await send({"type": "lifespan.shutdown.complete"})


def platform_and_apps(counters: ConnectionCounters | None, host: str, drain_seconds: float) -> Served:
    """Return what `manage.py web` serves: uvicorn's own connections for the platform, the fast ones for apps."""
    plane, place = data_plane(counters=counters), site()
    platform = PlatformOnly(place, platform_with(plane.counters))
    application = DataPlaneLifespan(platform, plane, host, drain_seconds)
    return application, uvicorn_protocol(plane, place)


def apps(counters: ConnectionCounters | None, host: str, drain_seconds: float) -> Served:
    """Return what `manage.py appproxy` serves: the fast connections alone."""
    plane = data_plane(counters=counters)
    return DataPlaneLifespan(None, plane, host, drain_seconds), lambda **_: ClientConnection(plane)
