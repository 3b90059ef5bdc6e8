"""Relays websocket messages between an ASGI server's events and an app's frames (RFC 6455)."""

import asyncio
from collections import deque
from typing import Final

from websockets.exceptions import ProtocolError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol as WebSocketProtocol
from websockets.protocol import Side, State

from proxy.asgi.request import MAX_BUFFERED_BYTES, Message, Receive, Send
from proxy.upstream.pool import UpstreamPool

# Codes that never stand in a close frame (RFC 6455, 7.4.1).
RESERVED_CODES: Final = frozenset((CloseCode.NO_STATUS_RCVD, CloseCode.ABNORMAL_CLOSURE, CloseCode.TLS_HANDSHAKE))


class WebSocketRelay(asyncio.Protocol):
    """The protocol of an app's connection after the handshake; messages to the client are buffered."""

    def __init__(self, transport: asyncio.Transport, pool: UpstreamPool) -> None:
        self._transport = transport
        self._pool = pool
        self._protocol = WebSocketProtocol(Side.CLIENT, state=State.OPEN, max_size=None)
        self._fragments: list[bytes] = []
        self._is_text = False  # of the message whose fragments are received
        self._messages: deque[Message] = deque()
        self._buffered_bytes = 0
        self.is_closed = False  # the last message for the client is in the buffer
        self._changed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        transport.set_protocol(self)

    async def run(self, receive: Receive, send: Send) -> None:
        """Relay messages in both directions until the app or the data plane closes the websocket."""
        from_client = asyncio.create_task(self._send_to_app(receive))
        try:
            while self._messages or not self.is_closed:
                if not self._messages:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                message = self._messages.popleft()
                await send(message)
                self._drained(message)
        finally:
            from_client.cancel()

    def close(self) -> None:
        """Close the app's connection when everything written to it is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close the app's connection at once, and the client's with code 1008."""
        self._transport.abort()
        self._close_client(CloseCode.POLICY_VIOLATION, "Access has ended.")

    # --- callbacks of asyncio

    def data_received(self, data: bytes) -> None:
        """Turn the app's frames into messages; pings are answered here."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._receive_frame(event)
        self._flush()
        error = self._protocol.parser_exc
        if error is not None:
            is_violation = isinstance(error, ProtocolError)
            self._close_client(CloseCode.PROTOCOL_ERROR if is_violation else CloseCode.INTERNAL_ERROR, "")
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the client's side, unless the app has closed the websocket properly."""
        self._may_write.set()
        self._close_client(CloseCode.INTERNAL_ERROR, "The app is gone.")

    def pause_writing(self) -> None:
        """Stop reading from the client."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Read on."""
        self._may_write.set()

    # --- from the client

    async def _send_to_app(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            await self._may_write.wait()
            if self._protocol.state is not State.OPEN:
                return
            if text is not None:
                self._protocol.send_text(text.encode())
            else:
                self._protocol.send_binary(message["bytes"])
            self._pool.is_used = True
            self._flush()
        if self._protocol.state is State.OPEN:
            code = message.get("code")
            has_code = code is not None and code not in RESERVED_CODES
            self._protocol.send_close(code if has_code else None, (message.get("reason") or "") if has_code else "")
            self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"".join(self._protocol.data_to_send()))

    # --- to the client

    def _receive_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            closed = self._protocol.close_rcvd
            code = closed.code if closed else CloseCode.NO_STATUS_RCVD
            reason = closed.reason if closed else ""
            self._close_client(CloseCode.NORMAL_CLOSURE if code in RESERVED_CODES else code, reason)
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._pool.is_used = True
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                content, self._fragments = b"".join(self._fragments), []
                self._buffer(_message(content, is_text=self._is_text))

    def _buffer(self, message: Message) -> None:
        self._messages.append(message)
        self._buffered_bytes += _size(message)
        self._changed.set()

    def _drained(self, message: Message) -> None:
        was_full = self._buffered_bytes > MAX_BUFFERED_BYTES
        self._buffered_bytes -= _size(message)
        if was_full and self._buffered_bytes <= MAX_BUFFERED_BYTES and not self._transport.is_closing():
            self._transport.resume_reading()

    def _close_client(self, code: int, reason: str) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._buffer({"type": "websocket.close", "code": int(code), "reason": reason})


def _message(content: bytes, *, is_text: bool) -> Message:
    if is_text:
        return {"type": "websocket.send", "text": content.decode("utf-8", "replace")}
    return {"type": "websocket.send", "bytes": content}


def _size(message: Message) -> int:
    return len(message.get("bytes") or message.get("text") or b"")
