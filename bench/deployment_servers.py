"""What `bench.deployments` runs in processes of their own: `python -m bench.deployment_servers ROLE PORT PORT...`.

Roles: `streams`, an upstream that sends one event and keeps the stream open; `ours`, the app proxy with services of so
many replicas at the other ports, the last of which is that of `streams`. A token is verified for each request, and the
counts of requests are shared as among the processes of a server.
"""

import asyncio
import sys
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final, cast

import uvloop

from bench.proxy_servers import HOST, SITE, NoControlPlane, keys
from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.signing import digest
from proxy.counters import CounterMemory, SharedCounters
from proxy.data_plane import DataPlane
from proxy.limits import raise_open_file_limit
from proxy.listener.client_connection import ClientConnection
from proxy.routes import ReplicaRoute, Route, RouteTable, Service, ServiceToken

SECRET: Final = f"gpd_{'b' * 43}"
REPLICAS: Final = (1, 2, 4)
STREAMS: Final = "streams--bench"
PROCESSES: Final = 2
EVENT: Final = b"data: token\n\n"
STREAM: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
)


def label(replicas: int) -> str:
    """Return the label of the service with so many replicas."""
    return f"replicas--{replicas}"


class Stream(asyncio.Protocol):
    """Answers each request with the beginning of a stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""

    def data_received(self, data: bytes) -> None:
        """Begin the stream once the request has come."""
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._received = b""
            self._transport.write(STREAM)


def service(name: str, ports: Sequence[int]) -> Service:
    """Return a service with a replica at each port."""
    routes = [
        Route(label=f"serve--{name}{port}", session=f"{name}{port}", owner=1, address=HOST, port=port, epoch=1)
        for port in ports
    ]
    replicas = tuple(ReplicaRoute(route=route, takes_requests=True) for route in routes)
    tokens = (ServiceToken(1, digest(SECRET), float("inf"), 0),)
    return Service(label=name, deployment=name, owner=1, epoch=1, tokens=tokens, replicas=replicas)


async def serve_ours(port: int, upstreams: Sequence[int], streams: int) -> None:
    """Run the app proxy for ever."""
    table = RouteTable()
    services = [service(label(number), upstreams[:number]) for number in REPLICAS] + [service(STREAMS, [streams])]
    table.replace(each.route for every in services for each in every.replicas)
    table.replace_services(services)
    authorizer = BrowserAuthorizer(
        site=SITE, table=table, keys=keys(), subnets=[ip_network("127.0.0.0/8")], control_plane=NoControlPlane()
    )
    plane = DataPlane(authorizer, NoControlPlane(), counters=SharedCounters(CounterMemory(PROCESSES)))
    plane.start()
    server = await asyncio.get_running_loop().create_server(lambda: ClientConnection(plane), HOST, port, backlog=2048)
    await server.serve_forever()


async def serve_streams(port: int) -> None:
    """Run the upstream of streams for ever."""
    server = await asyncio.get_running_loop().create_server(Stream, HOST, port, backlog=2048)
    await server.serve_forever()


def main() -> None:
    """Run the role that the arguments name."""
    raise_open_file_limit()
    role, *named = sys.argv[1:]
    port, *others = map(int, named)
    match role:
        case "streams":
            uvloop.run(serve_streams(port))
        case "ours":
            uvloop.run(serve_ours(port, others[:-1], others[-1]))
        case _:
            raise SystemExit(f"there is no role {role}")


if __name__ == "__main__":
    main()
