"""The app proxy, with an app at ports of this machine: reached directly, or through a gateway."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from proxy.authorization.gateway import GatewayAuthorizer
from proxy.authorization.networks import Network
from proxy.data_plane import DataPlane
from proxy.limits import GATEWAY_LIMITS, ProxyLimits
from proxy.listener.client_connection import ClientConnection
from proxy.routes import Route, RouteTable
from proxy.tests.app import App, running_app
from proxy.tests.site import BY_PORT, GATEWAY_KEY, GATEWAY_KEYS, SUBNETS, FakeControlPlane, authorizer, route

WAYS = ("direct", "gateway")


@dataclass
class RunningProxy:
    """The app proxy with an app behind it."""

    port: int
    app: App
    planes: list[DataPlane]  # the browser's side first
    table: RouteTable
    control_plane: FakeControlPlane

    def change(self, **changes: object) -> None:
        """Replace the routes by that to the app, with these changes."""
        self.table.replace([self.route(**changes)])

    def route(self, **changes: object) -> Route:
        """Return the route to the app with these changes."""
        known = self.table.get("echo--s1")
        gateway = known.gateway if known else ""
        return route(**({"port": self.app.port, "gateway": gateway, "gateway_key": GATEWAY_KEY} | changes))


@asynccontextmanager
async def running(
    name: str, limits: ProxyLimits | None = None, trusted_proxies: Sequence[Network] = (), **changes: object
) -> AsyncIterator[RunningProxy]:
    """Yield the app proxy, reached in one of WAYS; `changes` are those of its route to the app."""
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(running_app())
        control_plane = FakeControlPlane()
        planes = []
        gateway = ""
        if name == "gateway":
            table = RouteTable()
            table.replace([route(**({"port": app.port} | changes))])
            gateway_authorizer = GatewayAuthorizer(table=table, keys=GATEWAY_KEYS, subnets=SUBNETS)
            planes.append(DataPlane(gateway_authorizer, FakeControlPlane(), GATEWAY_LIMITS))
            gateway = f"http://127.0.0.1:{await stack.enter_async_context(_serving(planes[0]))}"
        authorizer_ = authorizer(
            route(**({"port": app.port, "gateway": gateway, "gateway_key": GATEWAY_KEY} | changes)),
            control_plane=control_plane,
        )
        plane = DataPlane(authorizer_, control_plane, limits, trusted_proxies)
        planes.insert(0, plane)
        port = await stack.enter_async_context(_serving(plane))
        yield RunningProxy(port, app, planes, authorizer_.table, control_plane)


@asynccontextmanager
async def running_by_port(name: str) -> AsyncIterator[RunningProxy]:
    """Yield the app proxy with the app at a port of its own, without a host name."""
    async with running(name) as proxy:
        plane = DataPlane(authorizer(site=BY_PORT, control_plane=proxy.control_plane), proxy.control_plane)
        async with _serving(plane, is_own_port=True) as port:
            by_port = RunningProxy(port, proxy.app, [plane], plane.authorizer.table, proxy.control_plane)
            by_port.table.replace([proxy.route(listen_port=port)])
            yield by_port


@asynccontextmanager
async def _serving(plane: DataPlane, *, is_own_port: bool = False) -> AsyncIterator[int]:
    """Yield the port of the app proxy: that of all apps, or that of one app."""
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
