"""What `bench.proxy` runs in processes of their own: `python -m bench.proxy_servers ROLE PORT HTTP_PORT ECHO_PORT`.

Roles: `echo`, a websocket upstream; `ours`, the app proxy with 1000 endpoints, a cookie to verify, and all header
rules, as in production.
"""

import asyncio
import base64
import hashlib
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Final, cast

import uvloop

from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.control_plane import ServiceFigures
from proxy.authorization.signing import Grant, Keys
from proxy.budgets import SpentBudget, TokenUse, UsageKey
from proxy.data_plane import DataPlane
from proxy.listener.client_connection import ClientConnection
from proxy.routes import Route, RouteTable
from proxy.site import Site

HOST: Final = "127.0.0.1"
MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
FRAME: Final = 64  # bytes of a message
MASKED: Final = FRAME + 6
ENDPOINTS: Final = 1000
SITE: Final = Site(platform_url=f"http://{HOST}:8000", apps_domain="apps.localhost")


class Echo(asyncio.Protocol):
    """Answers a handshake, then each message of 64 bytes; masks are of zeros, so a message is the frame's end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""
        self._is_open = False

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        data = self._buffer + data
        if not self._is_open:
            head, end, data = data.partition(b"\r\n\r\n")
            if not end:
                self._buffer = head
                return
            self._is_open = True
            key = head.lower().partition(b"sec-websocket-key:")[2].partition(b"\r\n")[0]
            start = head.lower().find(key)
            accept = base64.b64encode(hashlib.sha1(head[start : start + len(key)].strip() + MAGIC).digest())
            self._transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
            )
        while len(data) >= MASKED:
            self._transport.write(bytes((0x82, FRAME)) + data[6:MASKED])
            data = data[MASKED:]
        self._buffer = data


class NoControlPlane:
    """Nobody logs in, and activity is noted nowhere."""

    async def redeem(self, ticket: str, label: str, state_digest: str) -> tuple[Grant, str] | None:
        """Refuse."""
        return None

    async def look(self, label: str) -> None:
        """Do nothing."""

    def used(self, session: str) -> None:
        """Forget it."""

    def wake(self, deployment: str) -> None:
        """Wake nothing."""

    def served(self, figures: Sequence[ServiceFigures]) -> None:
        """Forget it."""

    def metered(self, uses: Mapping[UsageKey, TokenUse]) -> Mapping[int, SpentBudget]:
        """Forget it."""
        return {}


def grant(label: str) -> Grant:
    """Return a grant for an endpoint of the benchmark, good for ever."""
    return Grant(label=label, epoch=1, user=1, login="l" * 64, issued_at=1.0, expires_at=1e12)


def keys() -> Keys:
    """Return the keys of the benchmark."""
    return Keys(["bench:0123456789abcdef"])


def plane(http_port: int, echo_port: int) -> DataPlane:
    """Return a data plane with the two upstreams among a thousand endpoints."""
    table = RouteTable()
    routes = [
        Route(label=f"app--{number}", session=f"{number}", owner=1, address=HOST, port=1, epoch=1)
        for number in range(ENDPOINTS)
    ]
    for label, port in (("http--bench", http_port), ("echo--bench", echo_port)):
        routes.append(Route(label=label, session="bench", owner=1, address=HOST, port=port, epoch=1))
    table.replace(routes)
    authorizer = BrowserAuthorizer(
        site=SITE, table=table, keys=keys(), subnets=[ip_network("127.0.0.0/8")], control_plane=NoControlPlane()
    )
    return DataPlane(authorizer, NoControlPlane())


async def serve_echo(port: int) -> None:
    """Serve the websocket upstream for ever."""
    server = await asyncio.get_running_loop().create_server(Echo, HOST, port)
    await server.serve_forever()


async def serve_ours(port: int, http_port: int, echo_port: int) -> None:
    """Run the app proxy for ever."""
    plane_ = plane(http_port, echo_port)
    plane_.start()
    server = await asyncio.get_running_loop().create_server(lambda: ClientConnection(plane_), HOST, port)
    await server.serve_forever()


def main() -> None:
    """Run the role that the arguments name."""
    role, *ports = sys.argv[1:]
    port, http_port, echo_port = map(int, ports)
    match role:
        case "echo":
            uvloop.run(serve_echo(port))
        case "ours":
            uvloop.run(serve_ours(port, http_port, echo_port))
        case _:
            raise SystemExit(f"there is no role {role}")


if __name__ == "__main__":
    main()
