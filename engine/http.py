"""HTTP/1.1 responses of bounded size, and requests of bounded time to servers that may be hostile."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import httptools

HEAD_LIMIT: Final = 64 * 1024  # bytes of a response head; also half of what a hijacked stream reads ahead

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpResponseError(Exception):
    """The response is not HTTP, is longer than allowed, or ends before it is complete."""


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """Status code and whole body of a response."""

    status: int
    body: bytes


class BoundedResponseParser:
    """An incremental parser of one response, which collects the body."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._has_length = False
        self._has_head = False
        self._is_complete = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int | None:
        """The status code, None until it has been read."""
        code = int(self._parser.get_status_code())
        return code if code >= 100 else None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note whether the head says where the body ends; a callback of httptools."""
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """Note the end of the head; a callback of httptools."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Collect a part of the body; a callback of httptools."""
        self._body += body

    def on_message_complete(self) -> None:
        """Note the end of the response; a callback of httptools."""
        self._is_complete = True

    def feed(self, data: bytes) -> None:
        """Parse `data`, without the bytes that follow an upgrade. Raises HttpResponseError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            raise HttpResponseError("the response is not HTTP") from error

    async def stream(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, the first part (maybe empty) once the status is known.

        Raises HttpResponseError, and asyncio.IncompleteReadError when the connection ends before the response.
        """
        while not self._is_complete:
            data = await reader.read(HEAD_LIMIT)
            if not data:
                if self._has_head and not self._has_length:
                    return
                raise asyncio.IncompleteReadError(b"", None)
            self.feed(data)
            if self._has_head:
                part, self._body = bytes(self._body), bytearray()
                yield part

    async def read(self, reader: asyncio.StreamReader, limit: int) -> ServerResponse:
        """Return the response whose body has up to `limit` bytes.

        Raises HttpResponseError, and asyncio.IncompleteReadError when the connection ends before the response.
        """
        while not self._is_complete:
            data = await reader.read(HEAD_LIMIT)
            if not data:
                if self._has_head and not self._has_length:  # RFC 9112, section 6.3, rule 8
                    break
                raise asyncio.IncompleteReadError(b"", None)
            self.feed(data)
            if len(self._body) > limit:
                raise HttpResponseError("the response is too long")
        return ServerResponse(self.status or 0, bytes(self._body))


async def get(
    address: str, port: int, path: str, headers: Mapping[str, str], *, timeout_seconds: float, limit: int
) -> ServerResponse:
    """GET the path from the server at the address. Raises OSError and HttpResponseError."""
    async with asyncio.timeout(timeout_seconds), _requested(address, port, path, headers) as reader:
        try:
            return await BoundedResponseParser().read(reader, limit)
        except asyncio.IncompleteReadError as error:
            raise HttpResponseError("the response is incomplete") from error


async def get_status(
    address: str, port: int, path: str, headers: Mapping[str, str], *, timeout_seconds: float
) -> int | None:
    """GET the path and return the status code as soon as it is read; None when the server closes without a byte.

    Raises OSError and HttpResponseError.
    """
    parser, has_answered = BoundedResponseParser(), False
    async with asyncio.timeout(timeout_seconds), _requested(address, port, path, headers) as reader:
        while parser.status is None and (data := await reader.read(HEAD_LIMIT)):
            parser.feed(data)
            has_answered = True
    if has_answered and parser.status is None:
        raise HttpResponseError("the response is incomplete")
    return parser.status


@asynccontextmanager
async def _requested(
    address: str, port: int, path: str, headers: Mapping[str, str]
) -> AsyncIterator[asyncio.StreamReader]:
    """Connect, send the request, and yield the stream of the response."""
    reader, writer = await asyncio.open_connection(address, port, limit=HEAD_LIMIT)
    try:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{lines}Connection: close\r\n\r\n"
        with suppress(ConnectionError):  # the server may have responded before it has read all
            writer.write(head.encode())
            await writer.drain()
        yield reader
    finally:
        writer.transport.abort()
