"""The fast carrier: a browser's connection as an asyncio protocol, wired to an app's without streams or tasks between.

Requests are parsed by llhttp, one after the other; of the bodies of answers no byte is looked at that need not be.
"""

import asyncio
from collections import deque
from typing import Final, cast

import httptools

from proxy import exchange as own
from proxy.authorization import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane
from proxy.exchange import Exchange, needs_slot, response_bytes
from proxy.headers import Header, RequestHead
from proxy.login_flow import ReservedRequest
from proxy.responses import LocalResponse
from proxy.tunnel import Tunnel
from proxy.upstream_connection import BodyFraming, ResponseHead, UpstreamConnection
from proxy.upstream_pool import WRITE_AHEAD, UpstreamPool

FOREVER: Final = float("inf")
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
JOINED_BYTES: Final = 64 * 1024  # up to which a head and a body go out in one piece
EARLY_BYTES: Final = 64 * 1024  # of frames sent before the handshake is over


class ClientConnection(asyncio.Protocol):
    """One connection of a browser."""

    transport: asyncio.Transport

    def __init__(self, plane: DataPlane, listen_port: int | None = None) -> None:
        self._plane = plane
        self._authorizer = plane.authorizer
        self._listen_port = listen_port
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()
        self._headers: list[Header] = []
        self._target = b""
        self._early = b""  # bytes behind a handshake that is under way
        self._head_bytes = 0
        self._packet_bytes = 0
        self._is_in_head = self._is_too_long = False
        self._is_switching = False  # a handshake is under way: HTTP is over for this connection
        self._is_app_blocked = False
        self._is_deaf = False  # what comes is thrown away: the last answer was given
        self._is_blocked = False  # the client lags behind
        self._is_reading = True
        self._closes_when_idle = False
        self._peer = ""
        self.slot: ConnectionSlot | None = None
        self.deadline = self._loop.time() + plane.limits.head_seconds

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take part in the life of the plane."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by name
        self.transport.set_write_buffer_limits(high=WRITE_AHEAD)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if peer else ""
        self._pending_connection = self._plane.pending.admit(self.transport)
        self._is_deaf = self._pending_connection is None
        self._plane.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the app too: nobody waits for its answer."""
        self._plane.connections.discard(self)
        for exchange in self._exchanges:
            exchange.end()
        self._exchanges.clear()
        self._release()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and go on with the request under way or begin the next."""
        try:
            self._take(data)
        except Exception:  # a fault of ours: the client must not wait for ever
            self.cut()
            raise

    def _take(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._is_switching:
            self._early += data
            self._update_reading()
            return
        self._packet_bytes = len(data)
        self._head_bytes += self._packet_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._is_switching = True
            self._early = data[upgrade.args[0] :]
        except httptools.HttpParserError:
            self._refuse(own.MALFORMED)
            return
        if self._is_too_long or (self._is_in_head and self._head_bytes > self._plane.limits.head_bytes):
            self._refuse(own.TOO_LONG)
            return
        self._advance()

    def pause_writing(self) -> None:
        """Let the app wait for the client."""
        self._is_blocked = True
        if self._exchanges and self._exchanges[0].app:
            self._exchanges[0].app.pause_reading()

    def resume_writing(self) -> None:
        """Let the app go on."""
        self._is_blocked = False
        if self._exchanges and self._exchanges[0].app:
            self._exchanges[0].app.resume_reading()

    # --- httptools

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._headers = []
        self._target = b""
        self._head_bytes = self._packet_bytes
        self._is_in_head = True
        if not self._exchanges:
            self.deadline = self._loop.time() + self._plane.limits.head_seconds

    def on_url(self, target: bytes) -> None:
        """Keep the request target, which may come in parts."""
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers go no further."""
        if self._is_in_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Have a request, whose body may follow."""
        parser = self._parser
        self._is_in_head = False
        limit = self._plane.limits.head_bytes
        if self._head_bytes > limit:  # which counts what came with it
            self._is_too_long = len(self._target) + sum(len(name) + len(value) for name, value in self._headers) > limit
        request = RequestHead(parser.get_method(), self._target, self._headers, parser.get_http_version() != "1.1")
        self._exchanges.append(Exchange(request, is_kept_alive=parser.should_keep_alive()))

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body until it can be sent on."""
        self._exchanges[-1].body.append(data)

    def on_message_complete(self) -> None:
        """Have the whole of a request."""
        self._exchanges[-1].is_received = True

    # --- an exchange

    def _advance(self) -> None:
        """Begin the next request, or send on more of the one under way."""
        if self._exchanges:
            exchange = self._exchanges[0]
            if exchange.forward is None and exchange.task is None:
                self._begin(exchange)
            elif exchange.app and not exchange.is_sent:
                exchange.is_sent = exchange.is_received
                exchange.app.write(exchange.take_body(), is_whole=exchange.is_received)
                self._await_answer(exchange)
            self._update_reading()

    def _begin(self, exchange: Exchange) -> None:
        decision = self._authorizer.authorize(exchange.request, self._peer, self._listen_port)
        if isinstance(decision, ForwardDecision):
            self._forward(exchange, decision)
        elif isinstance(decision, LocalResponse):
            self._respond(exchange, decision)
        else:
            exchange.task = self._loop.create_task(self._serve(exchange, decision))

    def _forward(self, exchange: Exchange, forward: ForwardDecision) -> None:
        exchange.forward = forward
        slot = self.slot
        if slot is None or needs_slot(slot, forward):
            self._release()
            taken = self._plane.acquire_slot(forward.principal, forward.client)
            if isinstance(taken, LocalResponse):
                self._respond(exchange, taken)
                return
            self.slot = slot = taken
        slot.is_busy = slot.pool.is_used = True
        now = self._loop.time()
        self.deadline = FOREVER
        app = slot.pool.take_idle(now)
        if app:
            exchange.is_reused = True
            self._send(exchange, forward, app)
        else:
            exchange.task = self._loop.create_task(self._dial(exchange, forward, slot.pool))

    async def _dial(self, exchange: Exchange, forward: ForwardDecision, pool: UpstreamPool) -> None:
        try:
            app = await pool.connect()
        except OSError as error:
            exchange.task = None
            self._respond(exchange, own.SILENT if isinstance(error, TimeoutError) else own.UNREACHABLE)
        else:
            exchange.task = None
            self._send(exchange, forward, app)
            self._update_reading()

    async def _serve(self, exchange: Exchange, reserved: ReservedRequest) -> None:
        try:
            response = await self._authorizer.serve(reserved)
        except Exception:
            exchange.task = None
            self._respond(exchange, own.FAILED)
            raise
        exchange.task = None
        self._respond(exchange, response)

    def _send(self, exchange: Exchange, forward: ForwardDecision, app: UpstreamConnection) -> None:
        exchange.app = app
        exchange.is_sent = is_whole = exchange.is_received
        data = forward.to_bytes()
        if forward.length != 0:
            data += exchange.take_body()
        app.send(self, data, is_head=forward.method == b"HEAD", switches=forward.is_websocket, is_whole=is_whole)
        self._await_answer(exchange)
        if self._is_blocked:
            app.pause_reading()
        if forward.expects_continue and not is_whole:
            self.transport.write(CONTINUE)

    def _await_answer(self, exchange: Exchange) -> None:
        if exchange.is_sent and not exchange.is_begun:
            self.deadline = self._loop.time() + self._plane.limits.response_seconds

    def _respond(self, exchange: Exchange, response: LocalResponse) -> None:
        """Answer without the app."""
        closes = response.closes or self._is_last(exchange)
        self.transport.write(response.to_bytes(with_body=exchange.request.method != b"HEAD", closes=closes))
        self._finish(exchange, closes=closes)

    def _is_last(self, exchange: Exchange) -> bool:
        """Return whether nothing can follow an exchange whose answer begins now."""
        return not (exchange.is_kept_alive and exchange.is_received) or self._closes_when_idle or self._is_switching

    def _finish(self, exchange: Exchange, *, closes: bool) -> None:
        exchange.end()
        self._exchanges.popleft()
        if self.slot:
            self.slot.is_busy = False
        if closes:
            self._linger()
        elif self._exchanges:
            self._loop.call_soon(self.data_received, b"")  # not from here: hundreds may wait
        else:
            self.deadline = self._loop.time() + self._plane.limits.idle_seconds
            self._update_reading()

    # --- the app's answer

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Send the head on, with what of the body came along."""
        exchange = self._exchanges[0]
        forward = exchange.forward
        assert forward
        exchange.is_begun = True
        exchange.is_kept_alive = not (head.framing is BodyFraming.UNTIL_CLOSE or self._is_last(exchange))
        self.deadline = FOREVER
        headers = self._authorizer.response_headers(forward.principal, head.headers)
        data = response_bytes(head, headers, closes=not exchange.is_kept_alive)
        if len(first) <= JOINED_BYTES:
            self.transport.write(data + first)
        else:
            self.transport.write(data)
            self.transport.write(first)

    def response_body(self, data: bytes) -> None:
        """Send it on."""
        self.transport.write(data)

    def response_ended(self) -> None:
        """Go on to the next request."""
        exchange = self._exchanges[0]
        exchange.app = None
        self._finish(exchange, closes=self._closes_when_idle or not exchange.is_kept_alive)

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Leave the connections to each other."""
        exchange = self._exchanges.popleft()
        app, forward, slot = exchange.app, exchange.forward, self.slot
        assert app
        assert forward
        assert slot
        headers = self._authorizer.response_headers(forward.principal, head.headers)
        self.transport.write(response_bytes(head, headers, closes=False) + first)
        self.slot = None
        self._plane.connections.discard(self)
        Tunnel(self._plane, slot, self.transport, app.transport)
        if self._early:
            app.transport.write(self._early)
        app.resume_reading()
        if not self._is_reading:
            self.transport.resume_reading()

    def upstream_lost(self, *, is_broken: bool) -> None:
        """Ask again if the connection was just too old; otherwise the client learns that the answer is not whole."""
        exchange = self._exchanges[0]
        exchange.app = None
        if exchange.is_begun:
            self.transport.abort()
        elif exchange.may_repeat and exchange.forward and self.slot and not is_broken:
            exchange.is_reused = False
            exchange.task = self._loop.create_task(self._dial(exchange, exchange.forward, self.slot.pool))
        else:
            self._respond(exchange, own.BROKEN)

    def upstream_paused(self) -> None:
        """Let the client wait for the app."""
        self._is_app_blocked = True
        self._update_reading()

    def upstream_resumed(self) -> None:
        """Let the client go on."""
        self._is_app_blocked = False
        self._update_reading()

    # --- the end

    def expire(self) -> None:
        """End what took too long."""
        exchange = self._exchanges[0] if self._exchanges else None
        if exchange and not exchange.is_begun:
            self._respond(exchange, own.SILENT)
        elif self._is_in_head and not self._is_deaf:
            self._refuse(own.TOO_SLOW)
        else:
            self.cut()

    def cut(self) -> None:
        """End at once; `connection_lost` sees to the app."""
        self.transport.abort()

    def shut_down(self) -> None:
        """End when the answer under way is whole."""
        self._closes_when_idle = True
        if not self._exchanges:
            self.transport.close()

    def _refuse(self, response: LocalResponse) -> None:
        """Answer what cannot be parsed; an answer that is under way comes first."""
        self._closes_when_idle = self._is_deaf = True
        exchange = self._exchanges[0] if self._exchanges else None
        if exchange is None:
            self.transport.write(response.to_bytes())
            self._linger()
        elif not exchange.is_begun and not exchange.is_sent:
            self._respond(exchange, response)
        elif not exchange.is_received:
            self.cut()

    def _linger(self) -> None:
        """Let the client read the last answer before the connection ends, whatever it is still sending."""
        for exchange in self._exchanges:
            exchange.end()
        self._exchanges.clear()
        self._is_deaf = True
        transport = self.transport
        if not transport.can_write_eof():
            transport.close()
            return
        limits = self._plane.limits
        is_written = transport.get_write_buffer_size() == 0
        self.deadline = self._loop.time() + (limits.linger_seconds if is_written else limits.idle_seconds)
        transport.write_eof()
        self._update_reading()

    def _release(self) -> None:
        if self._pending_connection:
            self._pending_connection.end()
        if self.slot:
            self._plane.release_slot(self.slot)
            self.slot = None

    def _update_reading(self) -> None:
        """Read from the client only while there is somewhere for it to go; its end is seen only while reading."""
        exchanges = self._exchanges
        is_wanted = not exchanges or not (
            len(exchanges) > 1
            or self._is_app_blocked
            or (exchanges[0].app is None and not exchanges[0].is_received)
            or len(self._early) > EARLY_BYTES
        )
        if is_wanted is not self._is_reading and not self.transport.is_closing():
            self._is_reading = is_wanted
            if is_wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
