"""A connection to an app: it takes heads apart, and passes bodies on as the bytes that came."""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, cast

import httptools

from proxy.headers import Header

END_OF_HEAD: Final = b"\r\n\r\n"
SWITCHING: Final = 101


class BodyFraming(Enum):
    """How the end of an answer's body is found."""

    NONE = "none"  # there is no body
    SIZED = "sized"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


class _State(Enum):
    IDLE = "idle"
    HEAD = "head"
    SIZED = "sized"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"
    DONE = "done"


# Python finds a name of a module ten times as fast as a member of an enum.
IDLE, HEAD, SIZED, CHUNKED, UNTIL_CLOSE, DONE = _State


@dataclass(slots=True, eq=False)
class ResponseHead:
    """The head of an app's answer, as parsed."""

    status: int
    reason: bytes
    headers: list[Header]
    framing: BodyFraming


class ResponseHandler(Protocol):
    """Who waits for the answer; called in the order of an answer: begins, body..., ends; or `app_lost` at any time."""

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Take the head, and what of the body came with it."""
        ...

    def response_body(self, data: bytes) -> None:
        """Take more of the body: raw chunks where it is chunked, unless the connection decodes."""
        ...

    def response_ended(self) -> None:
        """Note that the answer is whole; the connection is released already."""
        ...

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Take over the connection, which speaks another protocol from now on; `first` came already."""
        ...

    def upstream_lost(self, *, is_broken: bool) -> None:
        """Note that nothing more comes: the connection ended before the answer did, or what came is no HTTP."""
        ...

    def upstream_paused(self) -> None:
        """Send no more for now."""
        ...

    def upstream_resumed(self) -> None:
        """Go on sending."""
        ...


class IdlePool(Protocol):
    """Where a connection goes back to when its answer is whole."""

    def release(self, app: "UpstreamConnection") -> None:
        """Take a connection that can serve again."""
        ...

    def discard(self, app: "UpstreamConnection") -> None:
        """Note that an idle connection is gone."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """One connection to an app; serves one request after the other."""

    transport: asyncio.Transport

    def __init__(self, home: IdlePool, head_limit: int) -> None:
        self._home = home
        self._head_limit = head_limit
        self._owner: ResponseHandler | None = None
        self._state = IDLE
        self._buffer = b""
        self._left = 0
        self._is_whole = self._is_sent = self._is_paused = self._is_excessive = False
        self.idle_since = 0.0

    def send(self, owner: ResponseHandler, data: bytes, *, is_head: bool, switches: bool, is_whole: bool) -> None:
        """Send a request's first bytes; the answer goes to `owner`. `is_head`: of a HEAD request."""
        self._owner = owner
        self._is_sent = is_whole
        self._expects_no_body = is_head
        self._may_switch = switches
        self._state = HEAD
        self._new_parser()
        self.transport.write(data)

    def write(self, data: bytes, *, is_whole: bool) -> None:
        """Send more of the request's body; nothing follows once it `is_whole`."""
        self._is_sent = is_whole
        self.transport.write(data)

    def abort(self) -> None:
        """End the connection at once, and tell nobody."""
        self._owner = None
        self._state = DONE
        self.transport.abort()

    def pause_reading(self) -> None:
        """Let the app wait: who takes the answer lags behind."""
        if not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take more of the answer."""
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by name

    def data_received(self, data: bytes) -> None:
        """Take what the app sends; between two requests it has nothing to say."""
        try:
            self._take(data)
        except Exception:  # a fault of ours: nobody must wait for ever
            self._lose(is_broken=True)
            raise

    def _take(self, data: bytes) -> None:
        state = self._state
        if state is HEAD:
            self._take_head(data)
        elif state is SIZED:
            self._take_sized(data)
        elif state is CHUNKED:
            self._take_chunked(data)
        elif state is UNTIL_CLOSE and self._owner:
            self._owner.response_body(data)
        elif state is IDLE:
            self._home.discard(self)
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End an answer that lasts until this moment; tell the owner of any other that it stays unfinished."""
        if self._owner is None:
            self._home.discard(self)
        elif self._state is UNTIL_CLOSE and exc is None:
            self._end(is_reusable=False)
        else:
            self._lose(is_broken=False)

    def pause_writing(self) -> None:
        """Pass on that the app lags behind."""
        if self._owner:
            self._owner.upstream_paused()

    def resume_writing(self) -> None:
        """Pass on that the app has caught up."""
        if self._owner:
            self._owner.upstream_resumed()

    # --- httptools

    def on_status(self, reason: bytes) -> None:
        """Keep the reason phrase, if it is one."""
        if reason.isascii() and reason.decode().isprintable():
            self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes after the head are trailers, which pass within the raw chunks."""
        self._headers.append((name, value))

    def on_message_begin(self) -> None:
        """Note an answer that nobody asked for: its bytes must not reach whoever asks next."""
        self._is_excessive = self._is_whole

    def on_message_complete(self) -> None:
        """Note the end of a message."""
        self._is_whole = True

    # --- the answer

    def _new_parser(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[Header] = []
        self._reason = b""
        self._is_whole = False

    def _take_head(self, data: bytes) -> None:
        while data:
            data = self._take_one_head(data)

    def _take_one_head(self, data: bytes) -> bytes:
        """Return what is behind a head that only announces another; nothing behind any other, or half of one."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
        if end < len(END_OF_HEAD) or end > self._head_limit:
            self._buffer = data
            if len(data) > self._head_limit:
                self._lose(is_broken=True)
            return b""
        try:
            self._parser.feed_data(data[:end])
        except httptools.HttpParserUpgrade:
            pass  # what the status means is judged below
        except httptools.HttpParserError:
            self._lose(is_broken=True)
            return b""
        return self._judge_head(data[end:])

    def _judge_head(self, rest: bytes) -> bytes:
        """Go on behind a head, and return `rest` if it is to be read as another."""
        status = self._parser.get_status_code()
        if status == SWITCHING:
            self._switch(rest)
        elif status < 200:
            self._new_parser()  # 100 was answered by us already, and browsers need none of the others
            return rest
        else:
            self._begin(status, rest)
        return b""

    def _begin(self, status: int, rest: bytes) -> None:
        owner = self._owner
        assert owner
        found = self._framing(status)
        if found is None:
            self._lose(is_broken=True)
            return
        framing, length = found
        head = ResponseHead(status, self._reason, self._headers, framing)
        self._headers = []  # what is still to come are trailers
        self._is_reusable = framing is not BodyFraming.UNTIL_CLOSE and self._parser.should_keep_alive()
        if framing is BodyFraming.NONE:
            owner.response_started(head, b"")
            self._end(is_reusable=self._is_reusable and not rest)
        elif framing is BodyFraming.SIZED:
            self._state, self._left = SIZED, length - len(rest)
            owner.response_started(head, rest if self._left >= 0 else rest[: self._left])
            if self._left <= 0:
                self._end(is_reusable=self._is_reusable and self._left == 0)
        elif framing is BodyFraming.CHUNKED:
            self._state = CHUNKED
            self._begin_chunked(owner, head, rest)
        else:
            self._state = UNTIL_CLOSE
            owner.response_started(head, rest)

    def _framing(self, status: int) -> tuple[BodyFraming, int] | None:
        """Return how the body ends, and its length where that says so; None where readers might not agree on it."""
        length = -1
        codings: list[bytes] = []
        for name, value in self._headers:
            size = len(name)
            if size == 14 and name.lower() == b"content-length":
                length = int(value)
            elif size == 17 and name.lower() == b"transfer-encoding":
                codings.append(value.lower())
        if codings and codings != [b"chunked"]:
            return None
        if self._expects_no_body or status in (204, 304):
            return BodyFraming.NONE, 0
        if codings:
            return BodyFraming.CHUNKED, 0
        return (BodyFraming.UNTIL_CLOSE, 0) if length < 0 else (BodyFraming.SIZED, length)

    def _take_sized(self, data: bytes) -> None:
        owner = self._owner
        assert owner
        self._left -= len(data)
        owner.response_body(data if self._left >= 0 else data[: self._left])
        if self._left <= 0:
            self._end(is_reusable=self._is_reusable and self._left == 0)

    def _begin_chunked(self, owner: ResponseHandler, head: ResponseHead, rest: bytes) -> None:
        passed = self._chunks(rest)
        if passed is not None:
            owner.response_started(head, passed)
            self._end_if_whole()

    def _take_chunked(self, data: bytes) -> None:
        passed = self._chunks(data)
        if passed and self._owner:
            self._owner.response_body(passed)
        if passed is not None:
            self._end_if_whole()

    def _end_if_whole(self) -> None:
        if self._is_whole and self._owner:
            self._end(is_reusable=self._is_reusable)

    def _chunks(self, data: bytes) -> bytes | None:
        """Return what the owner gets of chunks: the chunks; the parser finds where they end. None: they are broken."""
        return data if self._parse_chunks(data) else None

    def _parse_chunks(self, data: bytes) -> bool:
        """Return whether the chunks are well-formed; if not, the owner has been told."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._is_excessive = True
        if self._is_excessive:
            self._lose(is_broken=True)
        return not self._is_excessive

    def _switch(self, rest: bytes) -> None:
        owner = self._owner
        if owner is None or not self._may_switch:
            self._lose(is_broken=True)
            return
        self._owner, self._state = None, DONE
        owner.response_upgraded(ResponseHead(SWITCHING, self._reason, self._headers, BodyFraming.NONE), rest)

    def _end(self, *, is_reusable: bool) -> None:
        owner = self._owner
        assert owner
        self._owner = None
        if is_reusable and self._is_sent and not self.transport.is_closing():
            self._state = IDLE
            self.resume_reading()
            self._home.release(self)
        else:
            self._state = DONE
            self.transport.abort()
        owner.response_ended()

    def _lose(self, *, is_broken: bool) -> None:
        owner, self._owner = self._owner, None
        self._state = DONE
        self.transport.abort()
        if owner:
            owner.upstream_lost(is_broken=is_broken)


class DecodingUpstreamConnection(UpstreamConnection):
    """Passes the contents of chunks on instead of the chunks."""

    def on_body(self, data: bytes) -> None:
        """Keep the content of a chunk; bodies with a length never come here."""
        self._contents.append(data)

    def _chunks(self, data: bytes) -> bytes | None:
        self._contents: list[bytes] = []
        return b"".join(self._contents) if self._parse_chunks(data) else None
