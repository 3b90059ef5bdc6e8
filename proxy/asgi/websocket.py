"""Websockets in the ASGI server: the handshake is forwarded to the app."""

import asyncio
from typing import Final

from websockets.frames import CloseCode

from proxy.asgi.request import MAX_BUFFERED_BYTES, Message, Receive, Scope, Send, authorize_and_run, to_request
from proxy.asgi.websocket_relay import WebSocketRelay
from proxy.authorization.authorizer import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane
from proxy.http.headers import Header
from proxy.http.response_parser import ResponseHead
from proxy.http.responses import (
    ACCESS_ENDED,
    RESPONSE_TIMEOUT,
    UPSTREAM_FAILED,
    UPSTREAM_UNREACHABLE,
    LocalResponse,
)
from proxy.upstream.connection import UpstreamConnection

DENIAL: Final = "websocket.http.response"
# The server negotiates extensions with the browser by itself, so none may be agreed on with the app.
EXTENSIONS: Final = b"sec-websocket-extensions"
SERVER_HEADERS: Final = (b"sec-websocket-", b"connection", b"upgrade", b"date", b"server", b"content-length")


async def serve_websocket(plane: DataPlane, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a websocket from its handshake to its end."""
    await receive()  # the handshake, which the scope describes
    request = to_request(scope)
    if not any(name == b"upgrade" for name, _ in request.headers):
        request.headers += [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    request.headers = [header for header in request.headers if header[0] != EXTENSIONS]
    response = await authorize_and_run(plane, scope, request, AsgiWebSocket, receive, send)
    if response:
        await _deny(scope, response, send)


async def _deny(scope: Scope, response: LocalResponse, send: Send) -> None:
    """Refuse the handshake, with the response if the server supports that extension of ASGI."""
    if DENIAL not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": CloseCode.POLICY_VIOLATION})
        return
    headers = [(name.lower(), value) for name, value in response.headers]
    await send({"type": f"{DENIAL}.start", "status": response.status, "headers": headers})
    await send({"type": f"{DENIAL}.body", "body": response.body})


class AsgiWebSocket:
    """One websocket: handles the app's response to the handshake, then leaves the connection to a relay."""

    def __init__(self, plane: DataPlane, slot: ConnectionSlot, forward: ForwardDecision) -> None:
        self.slot: ConnectionSlot | None = slot
        self.deadline = float("inf")
        self._plane = plane
        self._pool = slot.pool
        self._forward = forward
        self._upstream: UpstreamConnection | None = None
        self._head: ResponseHead | None = None
        self._refusal = b""  # body of the app's response if it refuses
        self._failure: LocalResponse | None = None
        self._relay: WebSocketRelay | None = None
        self._decided = asyncio.Event()

    async def run(self, receive: Receive, send: Send) -> LocalResponse | None:
        """Forward the handshake, then relay until either side ends; return the response if the app refuses."""
        try:
            self._upstream = await self._pool.connect()
        except TimeoutError:
            return RESPONSE_TIMEOUT
        except OSError:
            return UPSTREAM_UNREACHABLE
        if self._failure:  # aborted in the meantime
            return self._failure
        self.deadline = asyncio.get_running_loop().time() + self._plane.limits.response_seconds
        self._upstream.send(self, self._forward.to_bytes(), is_head=False, may_upgrade=True, is_complete=True)
        await self._decided.wait()
        self.deadline = float("inf")
        head = self._head
        if head is None or self._failure:
            return self._failure or UPSTREAM_FAILED
        headers = self._plane.authorizer.response_headers(self._forward.principal, head.headers)
        if self._relay is None:
            return LocalResponse(status=head.status, headers=headers, body=self._refusal)
        await send(_acceptance(head, headers))
        await self._relay.run(receive, send)
        return None

    def close(self) -> None:
        """Close the upstream connection; what was written to it is still sent if the websocket was closed properly."""
        if self._relay and self._relay.is_closed:
            self._relay.close()
        else:
            self.abort()

    # --- the handshake

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Leave the connection to a relay."""
        assert self._upstream
        self._head = head
        self._relay = WebSocketRelay(self._upstream.transport, self._pool)
        self._upstream = None
        self._decided.set()
        if first:
            self._relay.data_received(first)

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Keep the app's refusal."""
        self._head = head
        self._refusal += first

    def response_body(self, data: bytes) -> None:
        """Keep the body of the refusal, up to a limit."""
        if len(self._refusal) < MAX_BUFFERED_BYTES:
            self._refusal += data

    def response_ended(self) -> None:
        """Complete the refusal."""
        self._upstream = None
        self._decided.set()

    def upstream_lost(self, *, is_malformed: bool) -> None:
        """Fail: the app has sent no complete response."""
        self._fail(UPSTREAM_FAILED)

    def upstream_paused(self) -> None:
        """Do nothing: a handshake fits into any buffer."""

    def upstream_resumed(self) -> None:
        """Do nothing, for the same reason."""

    # --- the data plane

    def expire(self) -> None:
        """Give up an app that does not respond to the handshake in time."""
        self._fail(RESPONSE_TIMEOUT)

    def abort(self) -> None:
        """End at once."""
        if self._relay:
            self._relay.abort()
        else:
            self._fail(ACCESS_ENDED)

    def shut_down(self) -> None:
        """Do nothing: the ASGI server ends its websockets."""

    def _fail(self, failure: LocalResponse) -> None:
        self._failure = failure
        if self._upstream:
            self._upstream.abort()
            self._upstream = None
        self._decided.set()


def _acceptance(head: ResponseHead, headers: list[Header]) -> Message:
    own = [(name.lower(), value) for name, value in headers if not name.lower().startswith(SERVER_HEADERS)]
    chosen = [value.decode() for name, value in head.headers if name.lower() == b"sec-websocket-protocol"]
    return {"type": "websocket.accept", "subprotocol": chosen[0] if chosen else None, "headers": own}
