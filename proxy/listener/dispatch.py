"""Chooses the protocol of a connection by the first request that comes over it."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.data_plane import DataPlane
from proxy.http import responses
from proxy.http.asgi import Application, Receive, Scope, Send
from proxy.http.headers import MalformedRequestError
from proxy.http.response_parser import END_OF_HEAD
from proxy.http.responses import LocalResponse
from proxy.limits import ProxyLimits
from proxy.listener.client_connection import ClientConnection
from proxy.listener.lingering import close_in_stages
from proxy.listener.zero_copy import ZeroCopyApplication
from proxy.pending import PendingConnection
from proxy.routes import RouteTable
from proxy.site import Site, name_of

HOST: Final = re.compile(rb"\r\nhost[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
ProtocolFactory = Callable[[bytes], asyncio.Protocol]  # of the bytes received so far
HostFilter = Callable[[bytes], bool]  # of a Host header's value


class FirstRequestDispatcher(asyncio.Protocol):
    """Waits for a header section, within the plane's limits, and leaves the connection to the protocol chosen by it."""

    def __init__(self, plane: DataPlane, choose: ProtocolFactory) -> None:
        self._choose = choose
        self._limits = plane.limits
        self._pending = plane.pending
        self._pending_connection: PendingConnection | None = None
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout, unless too many connections are pending."""
        self._transport = cast(asyncio.Transport, transport)
        self._pending_connection = self._pending.admit(self._transport)
        if self._pending_connection:
            self._wait(self._limits.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Hand the connection over once its first header section is complete, or too large."""
        if self._pending_connection is None:
            return  # refused
        unseen = max(0, len(self._received) + 1 - len(END_OF_HEAD))
        self._received += data
        if self._received.find(END_OF_HEAD, unseen) < 0 and len(self._received) <= self._limits.head_bytes:
            return
        self.stop_waiting()
        received = bytes(self._received)
        protocol = self._choose(received)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(received)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self.stop_waiting()

    def stop_waiting(self) -> None:
        """Stop the timeout, and no longer count the connection as pending."""
        if self._timer:
            self._timer.cancel()
        if self._pending_connection:
            self._pending_connection.release()

    def _wait(self, seconds: float) -> None:
        """Wait for so many seconds from now."""
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.abort)


def app_hosts(site: Site, table: RouteTable) -> HostFilter:
    """Return whether a Host header's value is the apps', or a service's own."""
    return lambda host: site.is_of_apps(host) or table.at_host(name_of(host)) is not None


def is_for_app(is_app_host: HostFilter, head: bytes) -> bool:
    """Return whether the first Host header in these bytes is one of apps."""
    match = HOST.search(head)
    return match is not None and is_app_host(match[1].rstrip(b" \t"))


class PlatformConnection(HttpToolsProtocol):
    """Uvicorn's connection with zero-copy send, and limits on the size and time of header sections.

    Trailer sections and chunk extensions have the limit of header sections too.
    """

    def __init__(self, limits: ProxyLimits, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.app = ZeroCopyApplication(cast(Application, self.app), self)
        self._limits = limits
        self._is_in_head = self._is_in_body = self._is_head_too_large = self._is_refused = False
        self._head_bytes = 0
        self._framing_bytes = 0  # of chunked framing and trailers since the last content, in whole reads
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Parse; refuse a header section that is too large, and abort if it is not complete in time."""
        if self._is_refused:
            return
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._is_in_body and self._framing_bytes > self._limits.head_bytes:
            self.transport.abort()
        if not self._is_in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > self._limits.head_bytes:
            self._refuse(responses.HEAD_TOO_LARGE)
        elif self._timer is None:
            self._timer = self.loop.call_later(self._limits.head_seconds, self.transport.abort)

    def on_message_begin(self) -> None:
        """Begin a header section."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """End the header section. Raises MalformedRequestError, for which uvicorn calls `send_400_response`."""
        self._end_head()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._is_head_too_large = size > self._limits.head_bytes
        hosts = sum(name == b"host" for name, _ in self.headers)
        is_without_host = hosts == 0 and self.parser.get_http_version() == "1.1"
        if self._is_head_too_large or is_without_host or hosts > 1:
            raise MalformedRequestError
        self._is_in_body, self._framing_bytes = True, 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse the request and close: 431 for a header section that is too large, else 400."""
        self._refuse(responses.HEAD_TOO_LARGE if self._is_head_too_large else responses.BAD_REQUEST)

    def _refuse(self, response: LocalResponse) -> None:
        """Respond, and close once the client has read that; a response under way would be garbled, and is cut off."""
        self._end_head()
        self._is_refused = True
        if self.cycle and not self.cycle.response_complete:
            self.transport.abort()
            return
        self.transport.write(response.to_bytes())
        self._timer = self.loop.call_later(close_in_stages(self.transport, self._limits), self.transport.abort)

    def on_body(self, body: bytes) -> None:
        """Notice content, which is the application's to limit."""
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._is_in_body = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._end_head()
        super().connection_lost(exc)

    def _end_head(self) -> None:
        self._is_in_head = False
        if self._timer:
            self._timer.cancel()
            self._timer = None


def uvicorn_protocol(plane: DataPlane, is_app_host: HostFilter) -> type[asyncio.Protocol]:
    """Return the class for uvicorn's option `http`: apps' connections are ours, all others uvicorn's."""

    class AppsFirst(FirstRequestDispatcher):
        """Takes the arguments of uvicorn's protocol; while it waits, uvicorn counts it among its connections."""

        def __init__(self, **uvicorn: Any) -> None:
            self._connections: set[Any] = uvicorn["server_state"].connections
            self._platform: PlatformConnection | None = None
            self._is_shutting_down = False

            def choose(head: bytes) -> asyncio.Protocol:
                if is_for_app(is_app_host, head):
                    return ClientConnection(plane)
                self._platform = PlatformConnection(plane.limits, **uvicorn)
                return self._platform

            super().__init__(plane, choose)

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            """Have uvicorn know the connection."""
            super().connection_made(transport)
            self._connections.add(self)

        def data_received(self, data: bytes) -> None:
            """Hand the connection over; where uvicorn shuts down, for one request."""
            super().data_received(data)
            if self._is_shutting_down and self._platform:
                self._platform.shutdown()

        def stop_waiting(self) -> None:
            """Leave it to the next protocol to be known to uvicorn."""
            super().stop_waiting()
            self._connections.discard(self)

        def shutdown(self) -> None:
            """Wait a little longer, as uvicorn shuts down: a request may be on its way, and would be lost."""
            self._is_shutting_down = True
            self._wait(self._limits.first_request_seconds)

    return AppsFirst


class PlatformOnly:
    """The platform as uvicorn serves it beside the app proxy: refuses requests for apps with 421.

    A reverse proxy must not send requests for apps and for the platform over one connection.
    """

    def __init__(self, is_app_host: HostFilter, platform: Application) -> None:
        self._is_app_host = is_app_host
        self._platform = platform

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve requests for the platform."""
        if not any(name == b"host" and self._is_app_host(value) for name, value in scope.get("headers", ())):
            await self._platform(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 421, "headers": headers})
            await send({"type": "http.response.body"})
