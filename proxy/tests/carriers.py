"""Each way by which a browser's bytes can reach an app, running on ports of this machine."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from uvicorn import Config, Server

from proxy.admission import Network
from proxy.app_connection import AppConnection, DecodingAppConnection
from proxy.asgi import AppsByAsgi
from proxy.asgi_request import Receive, Scope, Send
from proxy.gateway import GatewayAdmission
from proxy.limits import FOR_GATEWAY, Limits
from proxy.plane import DataPlane
from proxy.routes import Route, RouteTable
from proxy.splice import ClientConnection
from proxy.tests.app import App, running_app
from proxy.tests.site import BY_PORT, KEYS, SITE, SUBNETS, FakeAuthority, admission, route

CARRIERS = ("splice", "asgi", "gateway")


@dataclass
class Carrier:
    """A running carrier with the app behind it."""

    name: str
    port: int
    app: App
    planes: list[DataPlane]  # the browser's side first
    table: RouteTable
    authority: FakeAuthority

    def change(self, **changes: object) -> None:
        """Have the route to the app with these changes alone."""
        self.table.replace([self.route(**changes)])

    def route(self, **changes: object) -> Route:
        """Return the route to the app with these changes."""
        known = self.table.get("echo--s1")
        gateway = known.gateway if known else ""
        return route(**({"port": self.app.port, "gateway": gateway} | changes))


@asynccontextmanager
async def running(
    name: str, limits: Limits | None = None, fronts: Sequence[Network] = (), **changes: object
) -> AsyncIterator[Carrier]:
    """Yield a carrier, its route to the app changed as told."""
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(running_app())
        authority = FakeAuthority()
        planes = []
        gateway = ""
        if name == "gateway":
            table = RouteTable()
            table.replace([route(**({"port": app.port} | changes))])
            judge = GatewayAdmission(table=table, keys=KEYS, subnets=SUBNETS)
            planes.append(DataPlane(judge, FakeAuthority(), FOR_GATEWAY))
            gateway = f"http://127.0.0.1:{await stack.enter_async_context(_spliced(planes[0]))}"
        admission_ = admission(route(**({"port": app.port, "gateway": gateway} | changes)), authority=authority)
        kind = DecodingAppConnection if name == "asgi" else AppConnection
        plane = DataPlane(admission_, authority, limits, kind, fronts)
        planes.insert(0, plane)
        port = await stack.enter_async_context(_served(plane) if name == "asgi" else _spliced(plane))
        yield Carrier(name, port, app, planes, admission_.table, authority)


@asynccontextmanager
async def running_by_port(name: str) -> AsyncIterator[Carrier]:
    """Yield a carrier that has the app at a port of its own, with no host name for it."""
    async with running(name) as carrier:
        plane = DataPlane(admission(site=BY_PORT, authority=carrier.authority), carrier.authority)
        async with _spliced(plane, is_own_port=True) as port:
            by_port = Carrier(name, port, carrier.app, [plane], plane.admission.table, carrier.authority)
            by_port.table.replace([carrier.route(listen_port=port)])
            yield by_port


@asynccontextmanager
async def _spliced(plane: DataPlane, *, is_own_port: bool = False) -> AsyncIterator[int]:
    """Yield the port of the fast carrier: the one that all apps share, or one that an app may have to itself."""
    loop = asyncio.get_running_loop()
    own: list[int] = []  # known once the system has chosen it
    server = await loop.create_server(lambda: ClientConnection(plane, own[0] if own else None), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if is_own_port:
        own.append(port)
    plane.start()
    try:
        yield port
    finally:
        server.close()
        plane.stop()


@asynccontextmanager
async def _served(plane: DataPlane) -> AsyncIterator[int]:
    """Yield the port of the portable carrier under uvicorn."""

    async def get_plane() -> DataPlane:
        plane.start()
        return plane

    async def otherwise(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 421, "headers": []})
        await send({"type": "http.response.body", "body": b"the platform"})

    listener = socket.create_server(("127.0.0.1", 0))
    carrier = AppsByAsgi(SITE, get_plane, otherwise)
    config = Config(
        carrier, http="httptools", lifespan="off", log_level="critical", ws_max_size=2**30, proxy_headers=False
    )
    config.load()
    server = Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield listener.getsockname()[1]
    finally:
        plane.stop()
        server.force_exit = True
        await server.shutdown(sockets=[listener])
