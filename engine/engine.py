"""Asyncio client of a Docker-compatible engine; every request has a connection of its own.

The engine is reached by its socket, or through the gateway of another host, which forwards the requests that
gateway.py lists. The SDK is not used: it blocks threads, and cannot half-close a hijacked stream.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from engine.http import HEAD_LIMIT, BoundedResponseParser, HttpResponseError, ServerResponse, Streams

CONNECT_TIMEOUT_SECONDS: Final = 5.0
RESPONSE_TIMEOUT_SECONDS: Final = 30.0  # an engine under load takes seconds to start a process
BODY_LIMIT: Final = 4 * 2**20  # bytes of a JSON answer
GATEWAY_PREFIX: Final = "/.gp/engine"  # of the paths under which a gateway offers its engine
CLOSE: Final = {"Connection": "close"}
UPGRADE: Final = {"Connection": "Upgrade", "Upgrade": "tcp"}
# A peer that disappears without closing is detected after about a minute and a half, busy or idle.
KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 90_000}

Sign = Callable[[str, str, bytes], Mapping[str, str]]  # headers that let method, path and body through a gateway


class ExecError(Exception):
    """A request to the engine failed; the message can be shown to the session's owner."""


class EngineConnectionError(ExecError):
    """The engine, or its gateway, does not answer; the same request may succeed later."""


@dataclass(frozen=True, slots=True)
class EngineResponse(ServerResponse):
    """The engine's response to one request."""

    @property
    def is_success(self) -> bool:
        """True for a 2xx answer."""
        return 200 <= self.status < 300

    def json(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raises ExecError when there is none."""
        with suppress(ValueError):
            if isinstance(value := json.loads(self.body), dict):
                return value
        raise ExecError("The container engine sent an answer that is not understood.")

    def explanation(self) -> str:
        """Return the engine's error message, or the status code where it has none."""
        with suppress(ExecError):
            return str(self.json().get("message", f"status {self.status}"))
        return f"status {self.status}"


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine at `url`: `unix:///path` or `tcp://host:port`; with `sign`, the one behind a gateway, `http://host:port`.

    A gateway refuses other requests than those it forwards, and requests without a valid signature.
    """

    url: str
    sign: Sign | None = None

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, limit: int = BODY_LIMIT
    ) -> EngineResponse:
        """Return the engine's response of any status, with a body of up to `limit` bytes.

        Raises ExecError when there is no complete response.
        """
        async with self._translated():
            reader, writer = await self.begin(method, path, body)
            try:
                return self._passed(_engine_response(await BoundedResponseParser().read(reader, limit)))
            finally:
                writer.close()

    async def hijack(self, path: str, body: Mapping[str, Any]) -> Streams:
        """POST and return the connection as the raw byte stream that it becomes; the caller closes the writer.

        Raises ExecError, with the engine's message when it refuses.
        """
        async with self._translated():
            reader, writer = await self.begin("POST", path, body, upgrade=True)
            try:
                parser = BoundedResponseParser()
                parser.feed(await reader.readuntil(b"\r\n\r\n"))
                # Engines older than the upgrade handshake, and podman, respond with 200; the stream is raw as well.
                if parser.status in (101, 200):
                    return reader, writer
                response = _engine_response(await parser.read(reader, BODY_LIMIT))
                raise ExecError(refusal(self._passed(response)))
            except BaseException:
                writer.close()
                raise

    async def begin(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, upgrade: bool = False
    ) -> Streams:
        """Send the request and return the connection before any response is read; the caller closes the writer.

        Raises ExecError when there is no connection.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = dict(UPGRADE if upgrade else CLOSE)
        reader, writer = await self._connect()
        if self.sign:
            headers |= self.sign(method, path, content)
            path = GATEWAY_PREFIX + path
        writer.write(_request_bytes(method, path, headers, content))
        return reader, writer

    async def _connect(self) -> Streams:
        address = urlsplit(self.url)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                if address.scheme == "unix" and not self.sign:
                    return await asyncio.open_unix_connection(unquote(address.path), limit=HEAD_LIMIT)
                if address.scheme == ("http" if self.sign else "tcp") and _port(address):
                    streams = await asyncio.open_connection(address.hostname, address.port, limit=HEAD_LIMIT)
                    keep_alive(streams[1])
                    return streams
        except (OSError, TimeoutError) as error:
            raise EngineConnectionError(f"The {self._name} cannot be reached.") from error
        kinds = "not http://host:port" if self.sign else "neither unix:///path nor tcp://host:port"
        raise ExecError(f"The {self._name}'s address is {kinds}.")

    def _passed(self, answer: EngineResponse) -> EngineResponse:
        """Return the engine's response. Raises ExecError when the response is the gateway's own error."""
        if self.sign and answer.status == 403:
            raise ExecError("The gateway of the session's host refused the request; its log says why.")
        if self.sign and answer.status == 502:
            raise ExecError(answer.explanation())
        return answer

    @property
    def _name(self) -> str:
        return "gateway of the session's host" if self.sign else "container engine"

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        """Limit the time of one exchange, and raise ExecError for its errors."""
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
                yield
        except TimeoutError as error:
            raise EngineConnectionError(f"The {self._name} does not answer.") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise EngineConnectionError(f"The {self._name} broke off its answer.") from error
        except (asyncio.LimitOverrunError, HttpResponseError) as error:
            raise ExecError(f"The {self._name} sent an answer that is not understood: {error}.") from error


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Enable TCP keepalive, so that the loss of the other machine closes the connection."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _engine_response(response: ServerResponse) -> EngineResponse:
    return EngineResponse(response.status, response.body)


def refusal(answer: EngineResponse) -> str:
    """Return a sentence for the session's owner that explains the engine's error response about a container."""
    if answer.status == 404:
        return "The session's container no longer exists."
    if answer.status == 409:
        paused = "is paused" in answer.explanation()
        return "The session's container is paused." if paused else "The session's container is not running."
    return f"The container engine refused: {answer.explanation()}"


def _port(address: SplitResult) -> int | None:
    with suppress(ValueError):  # out of range
        return address.port
    return None


def _request_bytes(method: str, path: str, headers: Mapping[str, str], content: bytes) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: engine\r\n{lines}"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
