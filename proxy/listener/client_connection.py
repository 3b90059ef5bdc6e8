"""The connection of a client, such as a browser: an asyncio protocol without streams or tasks.

Requests are parsed by llhttp and served one after the other; the bodies of responses pass from one transport to the
other, looked at no more than their framing demands.
"""

import asyncio
from collections import deque
from enum import Enum
from typing import Final, cast

from proxy.authorization.decisions import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane
from proxy.http import responses
from proxy.http.headers import MalformedRequestError
from proxy.http.responses import LocalResponse
from proxy.listener.exchange import FOREVER, RECEIVING, SENT, Exchange
from proxy.listener.lingering import close_in_stages
from proxy.listener.request_parser import HeadTooLargeError, RequestParser, TooManyRequestsError
from proxy.listener.tunnel import Tunnel
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.pool import WRITE_BUFFER_BYTES

MAX_EARLY_BYTES: Final = 64 * 1024  # received behind a handshake that is under way


class Phase(Enum):
    """Where a client connection stands between its first request and its end."""

    OPEN = "open"  # requests are read and answered
    CLOSING = "closing"  # the current exchange is the last
    UPGRADING = "upgrading"  # a request asks for another protocol, and what follows it is not HTTP
    DISCARDING = "discarding"  # the last response is decided on; what still comes is read and dropped


# Python looks up a name of a module ten times as fast as a member of an enum.
OPEN, CLOSING, UPGRADING, DISCARDING = Phase


class ClientConnection(asyncio.Protocol):
    """One connection of a client."""

    transport: asyncio.Transport

    def __init__(self, plane: DataPlane, listen_port: int | None = None) -> None:
        """`listen_port` is the port of a single app, None that of all apps with a host name."""
        self.authorizer = plane.authorizer
        self.limits = plane.limits
        self._plane = plane
        self.listen_port = listen_port
        self.peer = ""
        self.slot: ConnectionSlot | None = None
        self.is_paused = False  # the client reads more slowly than it is sent to
        self._unread = 0  # bytes that the client had still to read when the deadline was set
        self.is_upstream_paused = False
        self.is_reading = True
        self._phase = OPEN
        self._is_new = True  # no request of it has been answered
        self.loop = asyncio.get_running_loop()
        self._exchanges: deque[Exchange] = deque()  # the first is under way, the others are pipelined
        self._early = b""  # bytes behind the handshake that is under way
        self._parser = RequestParser(self, self._exchanges)
        self.deadline = self.loop.time() + self.limits.head_seconds
        self.is_websocket = False

    # --- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the data plane; one that is over the limits gets a response and is closed."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if peer else ""
        self._pending_connection = self._plane.pending.admit(self.transport)
        if self._pending_connection is None:
            self._phase = DISCARDING
        self._plane.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all exchanges."""
        self._plane.connections.discard(self)
        self._cancel_exchanges()
        self._release()

    def data_received(self, data: bytes) -> None:
        """Parse, and go on with the exchange under way or begin the next."""
        try:
            self._receive(data)
        except Exception:  # a bug of ours: the client must not wait for ever
            self.abort()
            raise

    def pause_writing(self) -> None:
        """Pause the upstream until the client has read."""
        self.is_paused = True
        if self._exchanges and (upstream := self._exchanges[0].upstream):
            upstream.pause_reading()
            if self._exchanges[0].turn:  # or a client that reads no more would keep the replica from others
                self._await_reading()

    def resume_writing(self) -> None:
        """Resume the upstream."""
        self.is_paused = False
        if self._exchanges and self._exchanges[0].is_response_started:
            self.deadline = FOREVER
        if self._exchanges and (upstream := self._exchanges[0].upstream):
            upstream.resume_reading()
        elif self._exchanges:
            self.loop.call_soon(self.data_received, b"")  # begins the one that has waited

    def _receive(self, data: bytes) -> None:
        if self._phase is DISCARDING:
            return
        if self._phase is UPGRADING:
            self._early += data
        elif data:
            try:
                rest = self._parser.feed(data)
            except MalformedRequestError:
                self._refuse(responses.BAD_REQUEST)
                return
            except HeadTooLargeError:
                self._refuse(responses.HEAD_TOO_LARGE)
                return
            except TooManyRequestsError:
                self._refuse(responses.TOO_MANY_REQUESTS)
                return
            if rest is not None:
                self._phase, self._early = UPGRADING, rest
        if self._exchanges:
            self._exchanges[0].advance()
            self.update_reading()

    # --- for the exchange

    def acquire_slot(self, forward: ForwardDecision) -> ConnectionSlot | LocalResponse:
        """Return a slot of the request's principal: the connection's own, or a new one in its place."""
        slot = self.slot
        if slot is None or slot.principal is not forward.principal or slot.client != forward.client:
            self._release()
            acquired = self._plane.acquire_slot(forward.principal, forward.client)
            if isinstance(acquired, LocalResponse):
                return acquired
            self.slot = slot = acquired
        slot.is_busy = True
        if slot.pool:
            slot.pool.is_used = True
        self.deadline = FOREVER
        return slot

    def is_last(self, exchange: Exchange) -> bool:
        """Return whether the connection must end after a response that starts now (RFC 9112, 9.3)."""
        return self._phase is not OPEN or exchange.request_state is RECEIVING or not exchange.keeps_alive

    def finish(self, exchange: Exchange, *, closes: bool) -> None:
        """Go on behind the first exchange, or close the connection."""
        exchange.cancel()
        self._exchanges.popleft()
        self.is_upstream_paused = self._is_new = False
        if self.slot:
            self.slot.is_busy = False
        if closes or (self._phase is not OPEN and self._phase is not UPGRADING):
            self._close()
            return
        self.deadline = self.loop.time() + self.limits.idle_seconds
        if self._exchanges:
            self.loop.call_soon(self.data_received, b"")  # a direct call would recurse for each pipelined request
        elif not self.is_reading:
            self.update_reading()

    def start_tunnel(self, upstream: UpstreamConnection) -> None:
        """Leave the transport to a tunnel, with what the client has sent early."""
        slot, self.slot = self.slot, None
        assert slot
        self._exchanges.popleft()
        self._plane.connections.discard(self)
        Tunnel(self._plane, slot, self.transport, upstream.transport)
        if self._early:
            upstream.transport.write(self._early)
        upstream.resume_reading()
        if not self.is_reading:
            self.transport.resume_reading()

    def update_reading(self) -> None:
        """Read only while there is a place for what comes; the end of the connection is noticed only while reading."""
        exchanges = self._exchanges
        is_wanted = not exchanges or not (
            len(exchanges) > 1
            or self.is_upstream_paused
            or (exchanges[0].upstream is None and exchanges[0].request_state is RECEIVING and not exchanges[0].may_wait)
            or len(self._early) > MAX_EARLY_BYTES
        )
        if is_wanted is not self.is_reading and not self.transport.is_closing():
            self.is_reading = is_wanted
            if is_wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # --- the end

    def expire(self) -> None:
        """Respond that the deadline has passed, 504 for the app's and 408 for the client's, or abort.

        A client that reads slowly has another while it does.
        """
        exchange = self._exchanges[0] if self._exchanges else None
        if exchange and not exchange.is_response_started:
            exchange.time_out()
        elif exchange and self.is_paused and self.transport.get_write_buffer_size() < self._unread:
            self._await_reading()
        elif self._parser.is_in_head and self._phase is not DISCARDING:
            self._refuse(responses.REQUEST_TIMEOUT)
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once; `connection_lost` cancels the exchanges."""
        self.transport.abort()

    def shut_down(self) -> None:
        """Close when the response under way is complete, or now if there is none; a first request may be on its way."""
        if self._phase is OPEN:
            self._phase = CLOSING
        if not self._exchanges and self._is_new:
            self.deadline = min(self.deadline, self.loop.time() + self.limits.first_request_seconds)
        elif not self._exchanges:
            self.transport.close()

    def _await_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self.deadline = self.loop.time() + self.limits.body_seconds

    def _refuse(self, response: LocalResponse) -> None:
        """Respond to what cannot be parsed, after the response under way."""
        self._phase = DISCARDING
        exchange = self._exchanges[0] if self._exchanges else None
        if exchange is None:
            self.transport.write(response.to_bytes())
            self._close()
        elif not exchange.is_response_started and exchange.request_state is not SENT:
            exchange.respond(response)
        elif exchange.request_state is RECEIVING:
            self.abort()

    def _close(self) -> None:
        """Close when the client has read the last response."""
        self._phase = DISCARDING
        self._cancel_exchanges()
        seconds = close_in_stages(self.transport, self.limits)
        self.deadline = self.loop.time() + seconds
        self.update_reading()

    def _cancel_exchanges(self) -> None:
        for exchange in self._exchanges:
            exchange.cancel()
        self._exchanges.clear()

    def _release(self) -> None:
        if self._pending_connection:
            self._pending_connection.release()
        if self.slot:
            self._plane.release_slot(self.slot)
            self.slot = None
