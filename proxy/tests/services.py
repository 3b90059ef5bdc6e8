"""A service with replicas of its own, each an app at a port of this machine, behind the app proxy."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from proxy.authorization.gateway import GatewayAuthorizer
from proxy.counters import ConnectionCounters
from proxy.data_plane import DataPlane
from proxy.limits import GATEWAY_LIMITS, ProxyLimits
from proxy.routes import RouteTable
from proxy.tests.app import App, running_app
from proxy.tests.servers import serving
from proxy.tests.site import (
    GATEWAY_KEY,
    GATEWAY_KEYS,
    SECRET,
    SUBNETS,
    FakeControlPlane,
    authorizer,
    replica,
    service,
)
from proxy.tests.wire import request
from tests.wait import SECONDS

HOST: Final = "chat--d1.apps.localhost:8000"
BEARER: Final = {"Authorization": f"Bearer {SECRET}"}


@dataclass
class RunningService:
    """The app proxy with a service behind it; its replicas are numbered from 1."""

    port: int
    apps: list[App]
    plane: DataPlane
    table: RouteTable
    control_plane: FakeControlPlane
    gateway: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    replica_changes: dict[int, dict[str, object]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)

    def change(self, **changes: object) -> None:
        """Have the service change."""
        self.settings |= changes
        self.publish()

    def change_replica(self, number: int, **changes: object) -> None:
        """Have a replica, or its route, change."""
        self.replica_changes[number] = self.replica_changes.get(number, {}) | changes
        self.publish()

    def remove(self, number: int) -> None:
        """Remove a replica."""
        self.numbers.remove(number)
        self.publish()

    def publish(self) -> None:
        """Put the service and its replicas into the table, as the control plane would."""
        common = {"gateway": self.gateway, "gateway_key": GATEWAY_KEY}
        replicas = tuple(
            replica(number, **({"port": self.apps[number - 1].port} | common | self.replica_changes.get(number, {})))
            for number in self.numbers
        )
        self.table.replace(each.route for each in replicas)
        self.table.replace_services([service(replicas=replicas, **self.settings)])

    def served(self) -> list[int]:
        """Return how many requests each replica has got."""
        return [len(app.requests) for app in self.apps]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once a condition holds that some connection will make true."""
        async with asyncio.timeout(SECONDS):
            while not holds():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def running_service(
    replicas: int = 2,
    *,
    is_far: bool = False,
    limits: ProxyLimits | None = None,
    counters: ConnectionCounters | None = None,
    gateway_limits: ProxyLimits = GATEWAY_LIMITS,
    **settings: object,
) -> AsyncIterator[RunningService]:
    """Yield a service with so many replicas; `is_far`: a gateway is on the way to them."""
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(running_app()) for _ in range(replicas)]
        gateway = ""
        if is_far:
            table = RouteTable()
            table.replace([replica(number, port=app.port).route for number, app in enumerate(apps, 1)])
            far = GatewayAuthorizer(table=table, keys=GATEWAY_KEYS, subnets=SUBNETS)
            port = await stack.enter_async_context(serving(DataPlane(far, FakeControlPlane(), gateway_limits)))
            gateway = f"http://127.0.0.1:{port}"
        control_plane = FakeControlPlane()
        near = authorizer(control_plane=control_plane)
        plane = DataPlane(near, control_plane, limits, counters=counters)
        port = await stack.enter_async_context(serving(plane))
        running = RunningService(port, apps, plane, near.table, control_plane, gateway, settings)
        running.numbers = list(range(1, replicas + 1))
        running.publish()
        yield running


def call(method: str = "GET", target: str = "/echo", body: bytes = b"", /, **headers: str) -> bytes:
    """Return a request to the service with its token; underscores in the names of headers stand for dashes."""
    return request(method, target, body, HOST, **(BEARER | headers))
