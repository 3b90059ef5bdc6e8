"""Websockets of the portable carrier: messages go from the server's events to an app's frames and back."""

import asyncio
from collections import deque
from typing import Final

from websockets.exceptions import ProtocolError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol as Frames
from websockets.protocol import Side, State

from proxy.asgi_request import AHEAD_BYTES, Message, Receive, Scope, Send, authorize_and_run, to_request
from proxy.authorization import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane
from proxy.exchange import BROKEN, SILENT, UNREACHABLE
from proxy.headers import Header
from proxy.responses import LocalResponse
from proxy.upstream_connection import ResponseHead, UpstreamConnection

DENIAL: Final = "websocket.http.response"
# The server negotiates extensions with the browser by itself, so none may be agreed on with the app.
HANDSHAKE: Final = frozenset((b"sec-websocket-extensions",))
OF_THE_SERVER: Final = (b"sec-websocket-", b"connection", b"upgrade", b"date", b"server", b"content-length")
UNSAYABLE: Final = frozenset((CloseCode.NO_STATUS_RCVD, CloseCode.ABNORMAL_CLOSURE, CloseCode.TLS_HANDSHAKE))


async def relay(plane: DataPlane, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a websocket from its handshake to its end."""
    await receive()  # the handshake, which the scope describes
    request = to_request(scope)
    if not any(name == b"upgrade" for name, _ in request.headers):
        request.headers += [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    request.headers = [pair for pair in request.headers if pair[0] not in HANDSHAKE]
    response = await authorize_and_run(plane, scope, request, AsgiWebSocket, receive, send)
    if response:
        await _deny(scope, response, send)


async def _deny(scope: Scope, response: LocalResponse, send: Send) -> None:
    """Refuse the handshake, in words where the server can say them."""
    if DENIAL not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": CloseCode.POLICY_VIOLATION})
        return
    headers = [(name.lower(), value) for name, value in response.headers]
    await send({"type": f"{DENIAL}.start", "status": response.status, "headers": headers})
    await send({"type": f"{DENIAL}.body", "body": response.body})


class AsgiWebSocket(asyncio.Protocol):
    """One websocket: the owner of the app's connection during the handshake, and its protocol afterwards."""

    def __init__(self, plane: DataPlane, slot: ConnectionSlot, forward: ForwardDecision) -> None:
        self.slot: ConnectionSlot | None = slot
        self.deadline = float("inf")
        self._plane = plane
        self._pool = slot.pool
        self._forward = forward
        self._transport: asyncio.Transport | None = None
        self._app: UpstreamConnection | None = None
        self._frames = Frames(Side.CLIENT, state=State.OPEN, max_size=None)
        self._head: ResponseHead | None = None
        self._refusal = b""
        self._parts: list[bytes] = []
        self._is_text = False
        self._messages: deque[Message] = deque()
        self._ahead = 0
        self._is_over = self._is_known = self._is_silent = False
        self._news = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        slot.is_busy = slot.pool.is_used = True

    async def run(self, receive: Receive, send: Send) -> LocalResponse | None:
        """Ask the app, then relay until either side ends; return how to refuse if the app does."""
        try:
            self._app = await self._pool.connect()
        except TimeoutError:
            return SILENT
        except OSError:
            return UNREACHABLE
        self.deadline = asyncio.get_running_loop().time() + self._plane.limits.response_seconds
        self._app.send(self, self._forward.to_bytes(), is_head=False, switches=True, is_whole=True)
        while not self._is_known:
            await self._wait()
        self.deadline = float("inf")
        head = self._head
        if head is None:
            return SILENT if self._is_silent else BROKEN
        headers = self._plane.authorizer.response_headers(self._forward.principal, head.headers)
        if self._transport is None:
            return LocalResponse(status=head.status, headers=headers, body=self._refusal)
        await self._relay(head, headers, receive, send)
        return None

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _relay(self, head: ResponseHead, headers: list[Header], receive: Receive, send: Send) -> None:
        own = [(name.lower(), value) for name, value in headers if not name.lower().startswith(OF_THE_SERVER)]
        chosen = [value.decode() for name, value in head.headers if name.lower() == b"sec-websocket-protocol"]
        await send({"type": "websocket.accept", "subprotocol": chosen[0] if chosen else None, "headers": own})
        from_client = asyncio.create_task(self._from_client(receive))
        try:
            while self._messages or not self._is_over:
                if not self._messages:
                    await self._wait()
                    continue
                message = self._messages.popleft()
                await send(message)
                self._took(message)
        finally:
            from_client.cancel()

    async def _from_client(self, receive: Receive) -> None:
        """Send the client's messages to the app."""
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            await self._may_write.wait()
            if self._frames.state is not State.OPEN:
                return
            if text is not None:
                self._frames.send_text(text.encode())
            else:
                self._frames.send_binary(message["bytes"])
            self._pool.is_used = True
            self._flush()
        if self._frames.state is State.OPEN:
            code = message.get("code")
            sayable = code is not None and code not in UNSAYABLE
            self._frames.send_close(code if sayable else None, (message.get("reason") or "") if sayable else "")
            self._flush()
        if self._transport:
            self._transport.close()

    def _took(self, message: Message) -> None:
        was_full = self._ahead > AHEAD_BYTES
        self._ahead -= _size(message)
        if was_full and self._ahead <= AHEAD_BYTES and self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def _flush(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(b"".join(self._frames.data_to_send()))

    def leave(self) -> None:
        """Let the app have what is under way, and no more."""
        if self._transport and self._is_over:
            self._transport.close()
        else:
            self.cut()

    # --- the handshake

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Take the connection over from here on."""
        assert self._app
        self._head, self._transport, self._app = head, self._app.transport, None
        self._transport.set_protocol(self)
        self._know()
        if first:
            self.data_received(first)

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Keep the refusal."""
        self._head = head
        self._refusal += first

    def response_body(self, data: bytes) -> None:
        """Keep what it says, as much as is sensible."""
        if len(self._refusal) < AHEAD_BYTES:
            self._refusal += data

    def response_ended(self) -> None:
        """Know all of the refusal."""
        self._app = None
        self._know()

    def upstream_lost(self, *, is_broken: bool) -> None:
        """Know that there is no answer."""
        self._app = self._head = None
        self._know()

    def upstream_paused(self) -> None:
        """Nothing to do: a handshake fits into any buffer."""

    def upstream_resumed(self) -> None:
        """Nothing to do."""

    def _know(self) -> None:
        self._is_known = True
        self._news.set()

    # --- the app's frames

    def data_received(self, data: bytes) -> None:
        """Turn frames into messages; pings are answered here."""
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._take(event)
        self._flush()
        if self._frames.parser_exc is not None:
            self._close(CloseCode.PROTOCOL_ERROR if isinstance(self._frames.parser_exc, ProtocolError) else 1011, "")
        if self._ahead > AHEAD_BYTES and self._transport:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the client, unless the app has taken its leave."""
        self._may_write.set()
        if not self._is_over:
            self._close(CloseCode.INTERNAL_ERROR, "The app is gone.")

    def pause_writing(self) -> None:
        """Read no more from the client."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Read on."""
        self._may_write.set()

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            closed = self._frames.close_rcvd
            code = closed.code if closed else CloseCode.NO_STATUS_RCVD
            self._close(CloseCode.NORMAL_CLOSURE if code in UNSAYABLE else code, closed.reason if closed else "")
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._pool.is_used = True
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._parts.append(bytes(frame.data))
            if frame.fin:
                content, self._parts = b"".join(self._parts), []
                self._put(_message(content, is_text=self._is_text))

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._ahead += _size(message)
        self._news.set()

    def _close(self, code: int, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._put({"type": "websocket.close", "code": int(code), "reason": reason})

    # --- the plane

    def expire(self) -> None:
        """Give up an app that does not answer the handshake."""
        self._is_silent = True
        self.cut()

    def cut(self) -> None:
        """End at once."""
        if self._app:
            self._app.abort()
            self.upstream_lost(is_broken=False)
        if self._transport:
            self._transport.abort()
        self._close(CloseCode.POLICY_VIOLATION, "Access has ended.")

    def shut_down(self) -> None:
        """Nothing to do: the server ends its websockets."""


def _message(content: bytes, *, is_text: bool) -> Message:
    if is_text:
        return {"type": "websocket.send", "text": content.decode("utf-8", "replace")}
    return {"type": "websocket.send", "bytes": content}


def _size(message: Message) -> int:
    return len(message.get("bytes") or message.get("text") or b"")
