"""Parses the requests of one client connection with llhttp."""

from collections import deque
from typing import Final

import httptools

from proxy.http.headers import Header, MalformedRequestError, RequestHead
from proxy.listener.exchange import RECEIVED, Exchange, ExchangeClient

MAX_PIPELINED: Final = 1000  # requests of one connection that have come and wait for their response


class HeadTooLargeError(Exception):
    """A request line and header section, or a trailer section or chunk extension, of more bytes than the limit."""


class TooManyRequestsError(Exception):
    """More than MAX_PIPELINED requests: each takes far more memory than the bytes that it came as."""


class RequestParser:
    """Appends an exchange to the client's for each request, and adds the body to it."""

    def __init__(self, client: ExchangeClient, exchanges: deque[Exchange]) -> None:
        self._client = client
        self._exchanges = exchanges
        self._head_limit = client.limits.head_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[Header] = []
        self._target = b""
        self._head_bytes = 0  # received since the request began, in whole reads
        self._read_bytes = 0
        self._framing_bytes = 0  # of chunked framing and trailers since the last content, in whole reads
        self.is_in_head = self._is_in_body = self._is_too_large = False

    def feed(self, data: bytes) -> bytes | None:
        """Parse; return what follows the head of a request for an upgrade, which is not HTTP, and None for any other.

        `data` is not empty: llhttp would report an empty part of a body, which as a chunk is the end of one. Raises
        MalformedRequestError, HeadTooLargeError and TooManyRequestsError.
        """
        self._read_bytes = len(data)
        self._head_bytes += self._read_bytes
        self._framing_bytes += self._read_bytes
        rest = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            raise TooManyRequestsError from error
        except httptools.HttpParserError as error:
            raise MalformedRequestError from error
        if self._is_too_large or (self.is_in_head and self._head_bytes > self._head_limit):
            raise HeadTooLargeError
        if self._is_in_body and self._framing_bytes > self._head_limit:
            raise HeadTooLargeError
        return rest

    # --- callbacks of httptools

    def on_message_begin(self) -> None:
        """Begin a header section; where none is under way, its deadline is the connection's."""
        self._headers = []
        self._target = b""
        self._head_bytes = self._read_bytes
        self.is_in_head = True
        if not self._exchanges:
            client = self._client
            client.deadline = client.loop.time() + client.limits.head_seconds

    def on_url(self, target: bytes) -> None:
        """Keep the request target, which may come in parts."""
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, without the white space behind its value (RFC 9110, 5.5); trailers are dropped."""
        if self.is_in_head:
            self._headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Begin an exchange; a body may follow. Raises TooManyRequestsError, which llhttp wraps."""
        if len(self._exchanges) >= MAX_PIPELINED:
            raise TooManyRequestsError
        parser = self._parser
        self.is_in_head, self._is_in_body = False, True
        self._framing_bytes = 0
        if self._head_bytes > self._head_limit:  # an upper bound, which includes what came in the same read
            size = len(self._target) + sum(len(name) + len(value) for name, value in self._headers)
            self._is_too_large = size > self._head_limit
        request = RequestHead(parser.get_method(), self._target, self._headers, parser.get_http_version() != "1.1")
        self._exchanges.append(Exchange(self._client, request, keeps_alive=parser.should_keep_alive()))

    def on_body(self, data: bytes) -> None:
        """Add a part of the body to the exchange."""
        self._framing_bytes = 0
        self._exchanges[-1].body.append(data)

    def on_message_complete(self) -> None:
        """Mark the request as complete."""
        self._is_in_body = False
        self._exchanges[-1].request_state = RECEIVED
