"""A connection to an app, its upstream: header sections are parsed, bodies are passed on as the bytes that came."""

import asyncio
from enum import Enum
from typing import Protocol, cast

from proxy.http.response_parser import (
    CHUNKED_BODY,
    NO_BODY,
    SIZED_BODY,
    SWITCHING_PROTOCOLS,
    MalformedResponseError,
    ResponseHead,
    ResponseParser,
)


class _Phase(Enum):
    IDLE = "idle"
    HEAD = "head"
    SIZED = "sized"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"
    DONE = "done"  # closed, or left to another protocol


# Python looks up a name of a module ten times as fast as a member of an enum.
IDLE, HEAD, SIZED, CHUNKED, UNTIL_CLOSE, DONE = _Phase


class ResponseHandler(Protocol):
    """Receives a response: `response_started`, `response_body` any number of times, `response_ended`.

    `upstream_lost` may take the place of any of them, and `response_upgraded` that of all.
    """

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Receive the head, and what of the body came with it."""
        ...

    def response_body(self, data: bytes) -> None:
        """Receive more of the body; of a chunked one the chunks with their framing."""
        ...

    def response_ended(self) -> None:
        """Receive the end of the response; the connection is released already."""
        ...

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Take over a connection that has switched protocols; `first` came behind the head."""
        ...

    def upstream_lost(self, *, is_malformed: bool) -> None:
        """Handle the loss of the connection before the end of the response, or of one that sent no valid HTTP."""
        ...

    def upstream_paused(self) -> None:
        """Stop sending: the write buffer is full."""
        ...

    def upstream_resumed(self) -> None:
        """Go on sending."""
        ...


class IdlePool(Protocol):
    """Keeps the connections that wait for a request."""

    def release(self, upstream: "UpstreamConnection") -> None:
        """Take back a connection that can serve another request."""
        ...

    def discard(self, upstream: "UpstreamConnection") -> None:
        """Drop an idle connection that was closed."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """One connection to an app; serves one request after the other."""

    transport: asyncio.Transport

    def __init__(self, pool: IdlePool, parser: ResponseParser) -> None:
        self._pool = pool
        self._parser = parser
        self._handler: ResponseHandler | None = None
        self._phase = IDLE
        self._bytes_left = 0  # of a SIZED body
        self._is_request_sent = self._is_persistent = self._is_paused = False
        self.idle_since = 0.0  # loop time

    def send(
        self, handler: ResponseHandler, data: bytes, *, is_head: bool, may_upgrade: bool, is_complete: bool
    ) -> None:
        """Send the first bytes of a request; `handler` receives the response.

        `is_head`: the method is HEAD. `is_complete`: no more of the request follows.
        """
        self._handler = handler
        self._is_request_sent = is_complete
        self._phase = HEAD
        self._parser.expect(is_head_request=is_head, may_upgrade=may_upgrade)
        self.transport.write(data)

    def write(self, data: bytes, *, is_complete: bool) -> None:
        """Send more of the request's body."""
        self._is_request_sent = is_complete
        self.transport.write(data)

    def abort(self) -> None:
        """Close at once, without notice to the handler."""
        self._handler = None
        self._phase = DONE
        self.transport.abort()

    def pause_reading(self) -> None:
        """Read no more: the recipient of the response lags behind."""
        if not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on after `pause_reading`."""
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()

    # --- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it

    def data_received(self, data: bytes) -> None:
        """Receive a part of a response; an idle connection that receives anything is out of step, and closed."""
        try:
            self._receive(data)
        except MalformedResponseError:
            self._fail(is_malformed=True)
        except Exception:  # a bug of ours: the client must not wait for ever
            self._fail(is_malformed=True)
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete a response that lasts until the connection closes; fail any other."""
        if self._handler is None:
            self._pool.discard(self)
        elif self._phase is UNTIL_CLOSE and exc is None:
            self._finish(is_reusable=False)
        else:
            self._fail(is_malformed=False)

    def pause_writing(self) -> None:
        """Pass the backpressure on."""
        if self._handler:
            self._handler.upstream_paused()

    def resume_writing(self) -> None:
        """Pass the end of the backpressure on."""
        if self._handler:
            self._handler.upstream_resumed()

    # --- the response

    def _receive(self, data: bytes) -> None:
        phase, handler = self._phase, self._handler
        if handler is None:
            if phase is IDLE:
                self._pool.discard(self)
                self.transport.abort()
        elif phase is HEAD:
            head = self._parser.feed_head(data)
            if head:
                self._start_response(handler, head, self._parser.rest)
        elif phase is SIZED:
            self._bytes_left -= len(data)
            handler.response_body(data if self._bytes_left >= 0 else data[: self._bytes_left])
            self._finish_sized()
        elif phase is CHUNKED:
            self._parser.feed_chunks(data)
            handler.response_body(data)
            self._finish_chunked()
        elif phase is UNTIL_CLOSE:
            handler.response_body(data)

    def _start_response(self, handler: ResponseHandler, head: ResponseHead, rest: bytes) -> None:
        framing = head.framing
        self._is_persistent = head.is_persistent
        if head.status == SWITCHING_PROTOCOLS:
            self._handler, self._phase = None, DONE
            handler.response_upgraded(head, rest)
        elif framing is NO_BODY:
            handler.response_started(head, b"")
            self._finish(is_reusable=self._is_persistent and not rest)
        elif framing is SIZED_BODY:
            self._phase, self._bytes_left = SIZED, head.length - len(rest)
            handler.response_started(head, rest if self._bytes_left >= 0 else rest[: self._bytes_left])
            self._finish_sized()
        elif framing is CHUNKED_BODY:
            self._phase = CHUNKED
            self._parser.feed_chunks(rest)
            handler.response_started(head, rest)
            self._finish_chunked()
        else:
            self._phase = UNTIL_CLOSE
            handler.response_started(head, rest)

    def _finish_sized(self) -> None:
        if self._bytes_left <= 0:
            self._finish(is_reusable=self._is_persistent and self._bytes_left == 0)

    def _finish_chunked(self) -> None:
        if self._handler and self._parser.is_complete:
            self._finish(is_reusable=self._is_persistent)

    def _finish(self, *, is_reusable: bool) -> None:
        handler, self._handler = self._handler, None
        assert handler
        if is_reusable and self._is_request_sent and not self.transport.is_closing():
            self._phase = IDLE
            self.resume_reading()
            self._pool.release(self)
        else:
            self._phase = DONE
            self.transport.abort()
        handler.response_ended()

    def _fail(self, *, is_malformed: bool) -> None:
        handler, self._handler = self._handler, None
        self._phase = DONE
        self.transport.abort()
        if handler:
            handler.upstream_lost(is_malformed=is_malformed)
