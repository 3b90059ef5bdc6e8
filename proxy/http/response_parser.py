"""Parses the responses of apps: their header sections, and where their chunked bodies end (RFC 9112, 6 and 7)."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import httptools

from proxy.http.headers import Header

END_OF_HEAD: Final = b"\r\n\r\n"
SWITCHING_PROTOCOLS: Final = 101
MAX_INTERIM_RESPONSES: Final = 100  # 1xx, before the final one


class MalformedResponseError(Exception):
    """A response that is not HTTP, or whose end two recipients could find at different places."""


class BodyFraming(Enum):
    """How the end of a response's body is found (RFC 9112, 6.3)."""

    NONE = "none"
    SIZED = "sized"  # by Content-Length
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


# Python looks up a name of a module ten times as fast as a member of an enum.
NO_BODY, SIZED_BODY, CHUNKED_BODY, BODY_UNTIL_CLOSE = BodyFraming


class _Message(Enum):
    """How much of the expected response the parser has seen."""

    INCOMPLETE = "incomplete"
    COMPLETE = "complete"
    EXCESS = "excess"  # another message follows that no request asked for


INCOMPLETE, COMPLETE, EXCESS = _Message


@dataclass(slots=True, eq=False)
class ResponseHead:
    """The status line and header section of a response."""

    status: int
    reason: bytes
    headers: list[Header]
    framing: BodyFraming
    length: int = 0  # bytes of a SIZED body
    is_persistent: bool = False  # whether the connection can serve another request afterwards (RFC 9112, 9.3)


class ResponseParser:
    """Parses one response at a time; of chunked bodies it finds the end alone."""

    _message: _Message

    def __init__(self, head_limit: int) -> None:
        """Refuse header sections, interim ones included, and trailer sections of more than `head_limit` bytes."""
        self._head_limit = head_limit
        self._buffer = bytearray()  # the beginning of a header section
        self._is_head_request = self._may_upgrade = False
        self.rest = b""  # what came behind a header section

    def expect(self, *, is_head_request: bool, may_upgrade: bool) -> None:
        """Begin a new response: to a HEAD request, which has no content, or to one that asks for an upgrade."""
        self._is_head_request = is_head_request
        self._may_upgrade = may_upgrade
        self._interim_bytes = self._interim_responses = 0
        self._framing_bytes = 0
        self._reset()

    def feed_head(self, data: bytes) -> ResponseHead | None:
        """Return the final response's head once it is complete, with `rest` set; interim responses are skipped.

        101 is returned as a head if an upgrade was asked for. Raises MalformedResponseError.
        """
        if self._buffer:
            unseen = max(0, len(self._buffer) + 1 - len(END_OF_HEAD))
            self._buffer += data
            is_small = len(self._buffer) <= self._head_limit - self._interim_bytes
            if is_small and self._buffer.find(END_OF_HEAD, unseen) < 0:
                return None
            data, self._buffer = bytes(self._buffer), bytearray()
        while data:
            end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
            limit = self._head_limit - self._interim_bytes
            if end < len(END_OF_HEAD) or end > limit:
                self._buffer += data
                if len(data) > limit:
                    raise MalformedResponseError
                return None
            status = self._parse_head(data[:end])
            data = data[end:]
            if status >= 200 or status == SWITCHING_PROTOCOLS:
                self.rest = data
                return self._to_head(status)
            self._skip_interim(end)
        return None

    def feed_chunks(self, data: bytes) -> None:
        """Follow a chunked body towards its end. Raises MalformedResponseError."""
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise MalformedResponseError from error
        if self._message is EXCESS or self._framing_bytes > self._head_limit:
            raise MalformedResponseError

    @property
    def is_complete(self) -> bool:
        """Whether the last chunk has been fed."""
        return self._message is COMPLETE

    # --- callbacks of httptools

    def on_body(self, data: bytes) -> None:
        """Notice content, which has no limit; what lies between is framing and trailers, which have one."""
        self._framing_bytes = 0

    def on_status(self, reason: bytes) -> None:
        """Keep a printable reason phrase."""
        if reason == b"OK" or (reason.isascii() and reason.decode().isprintable()):
            self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, as requests' are; those behind the head are trailers, which pass within the chunks."""
        self._headers.append((name, value.rstrip(b" ")))  # what llhttp itself takes for white space there

    def on_headers_complete(self) -> None:
        """Keep what llhttp forgets with the end of the message, which comes at once where there is no content."""
        self._keeps_alive = self._parser.should_keep_alive()

    def on_message_begin(self) -> None:
        """Notice a second message: its bytes must not be taken for the response to the next request."""
        if self._message is COMPLETE:
            self._message = EXCESS

    def on_message_complete(self) -> None:
        """Notice the end of the message."""
        if self._message is INCOMPLETE:
            self._message = COMPLETE

    def _skip_interim(self, head_bytes: int) -> None:
        """Drop an interim response: 100 was sent by us already, and browsers need none of the others."""
        self._interim_bytes += head_bytes
        self._interim_responses += 1
        if self._interim_responses > MAX_INTERIM_RESPONSES:
            raise MalformedResponseError
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[Header] = []
        self._reason = b""
        self._message = INCOMPLETE
        self._keeps_alive = False

    def _parse_head(self, data: bytes) -> int:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the status decides
        except httptools.HttpParserError as error:
            raise MalformedResponseError from error
        return self._parser.get_status_code()

    def _to_head(self, status: int) -> ResponseHead:
        headers, self._headers = self._headers, []  # what is still to come are trailers
        if status == SWITCHING_PROTOCOLS:
            if not self._may_upgrade:
                raise MalformedResponseError
            return ResponseHead(status, self._reason, headers, NO_BODY)
        framing, length = self._framing(status, headers)
        return ResponseHead(status, self._reason, headers, framing, length, self._keeps_alive)

    def _framing(self, status: int, headers: list[Header]) -> tuple[BodyFraming, int]:
        """Return how the body ends, and its length if it is SIZED (RFC 9112, 6.3)."""
        length = -1
        codings: list[bytes] = []
        for name, value in headers:
            size = len(name)
            if size == 14 and name.lower() == b"content-length":
                length = int(value)
            elif size == 17 and name.lower() == b"transfer-encoding":
                codings.append(value.lower())
        if codings and codings != [b"chunked"]:
            raise MalformedResponseError
        if self._is_head_request or status in (204, 304):
            return NO_BODY, 0
        if codings:
            return CHUNKED_BODY, 0
        return (BODY_UNTIL_CLOSE, 0) if length < 0 else (SIZED_BODY, length)
