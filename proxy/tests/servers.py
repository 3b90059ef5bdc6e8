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
from proxy.tests.site import (
    BY_PORT,
    ELSEWHERE,
    GATEWAY_KEY,
    GATEWAY_KEYS,
    HOST,
    SITE,
    SUBNETS,
    FakeControlPlane,
    authorizer,
    replica,
    route,
    service,
)

WAYS = ("direct", "gateway")  # to an app
# to two replicas of a service that have the app's label and port; by name, the app's host name is the service's own
SERVICE_WAYS = ("service", "service by gateway", "service by name")
REPLICAS = (1, 2)
OF_SERVICE = frozenset(("is_public", "epoch", "owner", "hosts"))  # changes that concern the service itself


@dataclass
class RunningProxy:
    """The app proxy with an app behind it."""

    port: int
    app: App
    planes: list[DataPlane]  # the browser's side first
    table: RouteTable
    control_plane: FakeControlPlane
    gateway: str = ""  # its URL, on the ways that have one
    names: tuple[str, ...] = ()  # of the service's own

    @property
    def is_service(self) -> bool:
        """Whether a service with several replicas is behind it."""
        return bool(self.table.services)

    def change(self, **changes: object) -> None:
        """Replace the routes by that to the app, or to the replicas, with these changes."""
        if self.is_service:
            replace_service(self.table, self.app.port, self.gateway, hosts=self.names, **changes)
        else:
            self.table.replace([self.route(**changes)])

    def withdraw(self) -> None:
        """Remove the app, or the service."""
        self.table.replace_services([])
        self.table.replace([])

    def route(self, **changes: object) -> Route:
        """Return the route to the app with these changes."""
        return route(**({"port": self.app.port, "gateway": self.gateway, "gateway_key": GATEWAY_KEY} | changes))


def replace_service(table: RouteTable, port: int, gateway: str, **changes: object) -> None:
    """Put the service `echo--s1` and its two replicas, both at this port, into the table."""
    own = {name: value for name, value in changes.items() if name in OF_SERVICE}
    others = {"port": port, "gateway": gateway, "gateway_key": GATEWAY_KEY} | {
        name: value for name, value in changes.items() if name not in OF_SERVICE
    }
    replicas = tuple(replica(number, **others) for number in REPLICAS)
    table.replace(each.route for each in replicas)
    table.replace_services([service(label="echo--s1", deployment="s1", replicas=replicas, **own)])


@asynccontextmanager
async def running(
    name: str, limits: ProxyLimits | None = None, trusted_proxies: Sequence[Network] = (), **changes: object
) -> AsyncIterator[RunningProxy]:
    """Yield the app proxy, reached in one of WAYS or SERVICE_WAYS; `changes` are those of its route to the app."""
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(running_app())
        control_plane = FakeControlPlane()
        planes = []
        gateway = ""
        if name.endswith("gateway"):
            table = RouteTable()
            table.replace([route(**({"port": app.port} | changes))])
            if name in SERVICE_WAYS:
                table.replace([replica(number, **({"port": app.port} | changes)).route for number in REPLICAS])
            gateway_authorizer = GatewayAuthorizer(table=table, keys=GATEWAY_KEYS, subnets=SUBNETS)
            planes.append(DataPlane(gateway_authorizer, FakeControlPlane(), GATEWAY_LIMITS))
            gateway = f"http://127.0.0.1:{await stack.enter_async_context(serving(planes[0]))}"
        is_named = name == "service by name"
        authorizer_ = authorizer(site=ELSEWHERE if is_named else SITE, control_plane=control_plane)
        plane = DataPlane(authorizer_, control_plane, limits, trusted_proxies)
        planes.insert(0, plane)
        port = await stack.enter_async_context(serving(plane))
        proxy = RunningProxy(port, app, planes, authorizer_.table, control_plane, gateway)
        if name in SERVICE_WAYS:
            proxy.names = (HOST.partition(":")[0],) if is_named else ()
            proxy.table.replace([])
            replace_service(proxy.table, app.port, gateway, hosts=proxy.names, **changes)
        else:
            proxy.change(**changes)
        yield proxy


@asynccontextmanager
async def running_by_port(name: str) -> AsyncIterator[RunningProxy]:
    """Yield the app proxy with the app at a port of its own, without a host name."""
    async with running(name) as proxy:
        plane = DataPlane(authorizer(site=BY_PORT, control_plane=proxy.control_plane), proxy.control_plane)
        async with serving(plane, is_own_port=True) as port:
            by_port = RunningProxy(port, proxy.app, [plane], plane.authorizer.table, proxy.control_plane, proxy.gateway)
            by_port.table.replace([proxy.route(listen_port=port)])
            yield by_port


@asynccontextmanager
async def serving(plane: DataPlane, *, is_own_port: bool = False) -> AsyncIterator[int]:
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
