"""Requests to a Docker-compatible engine over its socket, one connection each; never the SDK, never a thread."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httptools

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0  # an engine under load takes seconds to start a process
HEAD_LIMIT: Final = 64 * 1024  # bytes of a response head; also half of what a hijacked stream reads ahead
BODY_LIMIT: Final = 4 * 2**20  # bytes of a JSON answer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ExecFailed(Exception):
    """The engine could not do it; the message is fit for the session's owner."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The engine's response to one request."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        """True for a 2xx answer."""
        return 200 <= self.status < 300

    def json(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raises ExecFailed when there is none."""
        with suppress(ValueError):
            if isinstance(value := json.loads(self.body), dict):
                return value
        raise ExecFailed("The container engine sent an answer that is not understood.")

    def explanation(self) -> str:
        """Return the engine's own words for its refusal."""
        with suppress(ExecFailed):
            return str(self.json().get("message", f"status {self.status}"))
        return f"status {self.status}"


class _Response:
    """Callbacks of the HTTP parser: keeps the body and notes the end."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.is_complete = False
        self.parser = httptools.HttpResponseParser(self)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True

    def feed(self, data: bytes) -> None:
        """Parse `data`; the bytes of an upgraded connection do not belong here."""
        with suppress(httptools.HttpParserUpgrade):
            self.parser.feed_data(data)

    @property
    def answer(self) -> Answer:
        return Answer(self.parser.get_status_code(), bytes(self.body))


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine at `url`: `unix:///path` or `tcp://host:port`."""

    url: str

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Return the engine's answer, whatever its status. Raises ExecFailed when the engine does not give one."""
        async with self._connected() as (reader, writer), _translated():
            writer.write(_request_bytes(method, path, body, connection="close"))
            return await _read_answer(reader, _Response())

    async def hijack(self, path: str, body: Mapping[str, Any]) -> Streams:
        """POST and return the connection as the raw byte stream that it becomes; the caller closes the writer.

        Raises ExecFailed, with the engine's words when it refuses.
        """
        reader, writer = await self._connect()
        try:
            async with _translated():
                writer.write(_request_bytes("POST", path, body, connection="Upgrade\r\nUpgrade: tcp"))
                response = _Response()
                response.feed(await reader.readuntil(b"\r\n\r\n"))
                # 200 is what engines before the upgrade dance, and podman, answer; the stream is raw all the same.
                if response.parser.get_status_code() in (101, 200):
                    return reader, writer
                raise ExecFailed(refusal(await _read_answer(reader, response)))
        except BaseException:
            writer.close()
            raise

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Streams]:
        reader, writer = await self._connect()
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _connect(self) -> Streams:
        address = urlsplit(self.url)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if address.scheme == "unix":
                    return await asyncio.open_unix_connection(unquote(address.path), limit=HEAD_LIMIT)
                if address.scheme == "tcp" and address.port:
                    return await asyncio.open_connection(address.hostname, address.port, limit=HEAD_LIMIT)
        except (OSError, TimeoutError) as error:
            raise ExecFailed("The container engine cannot be reached.") from error
        raise ExecFailed("The container engine's address is neither unix:///path nor tcp://host:port.")


def refusal(answer: Answer) -> str:
    """Return in words, for the session's owner, why the engine refused something about a container."""
    if answer.status == 404:
        return "The session's container no longer exists."
    if answer.status == 409:
        paused = "is paused" in answer.explanation()
        return "The session's container is paused." if paused else "The session's container is not running."
    return f"The container engine refused: {answer.explanation()}"


def _request_bytes(method: str, path: str, body: Mapping[str, Any] | None, *, connection: str) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: engine\r\nConnection: {connection}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def _read_answer(reader: asyncio.StreamReader, response: _Response) -> Answer:
    while not response.is_complete:
        data = await reader.read(HEAD_LIMIT)
        if not data:
            raise ExecFailed("The container engine broke off its answer.")
        response.feed(data)
        if len(response.body) > BODY_LIMIT:
            raise ExecFailed("The container engine sent an answer that is too long.")
    return response.answer


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Bound one exchange in time, and turn what may go wrong in it into ExecFailed."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except TimeoutError as error:
        raise ExecFailed("The container engine does not answer.") from error
    except (OSError, asyncio.IncompleteReadError) as error:
        raise ExecFailed("The container engine broke off its answer.") from error
    except (httptools.HttpParserError, asyncio.LimitOverrunError) as error:
        raise ExecFailed("The container engine sent an answer that is not understood.") from error
