"""Offer web servers a part of a host's container engine: terminals, commands and logs of its sessions' containers.

Each connection carries one request, with a pass for just this method, path and body. What the engine is asked is
written anew from what was understood, and of its answers only what a terminal needs goes back. An exec is known by a
handle that this gateway signed when it created it, so it outlives a restart, and execs of others are out of reach.
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import httptools

from engine.containers import ATTEMPT_LABEL, SESSION_LABEL, container_name
from engine.engine import GATEWAY_PREFIX, Engine, EngineResponse, ExecError, Sign, keep_alive
from engine.http import HEAD_LIMIT, Streams
from proxy.authorization import gateway_tokens
from proxy.authorization.signing import EXEC, InvalidSignatureError, Keys

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS: Final = 10.0
BODY_LIMIT: Final = 64 * 1024
CONTAINER: Final = re.compile(r"/containers/([A-Za-z0-9][A-Za-z0-9_.-]{0,127})/(json|exec|logs)")
HANDLE: Final = re.compile(r"/exec/([A-Za-z0-9_.-]{1,400})/(json|start|resize)")
SIZE: Final = re.compile(r"w=\d{1,4}&h=\d{1,4}")
TAIL: Final = re.compile(
    r"stdout=1&stderr=1&tail=(\d{1,6}|all&follow=1&timestamps=1&since=\d{1,12}\.\d{9}|\d{1,6}&follow=1&timestamps=1)"
)
UPGRADED: Final = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
REASONS: Final = {200: "OK", 201: "Created", 404: "Not Found", 409: "Conflict", 502: "Bad Gateway"}
ATTACHED: Final = [{"Detach": False, "Tty": is_terminal} for is_terminal in (True, False)]
# What an exec may be asked to be; above all not privileged, and not another user's than the container's own.
EXEC_KEYS: Final[dict[str, type]] = {
    "Cmd": list,
    "Env": list,
    "Tty": bool,
    "AttachStdin": bool,
    "AttachStdout": bool,
    "AttachStderr": bool,
    "DetachKeys": str,
}


class RequestRefusedError(Exception):
    """The request is refused with a bare 403; the message goes to the gateway's log only."""


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """A request whose gateway token is valid; `path` is the engine's, `query` without its question mark."""

    method: str
    path: str
    query: str
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raises RequestRefusedError when there is none."""
        with suppress(ValueError):
            if isinstance(value := json.loads(self.body), dict):
                return value
        raise RequestRefusedError("its body is no JSON object")


def signer(keys: Keys, host: str) -> Sign:
    """Return the function that signs an `Engine`'s requests for the gateway of `host`."""

    def sign(method: str, path: str, body: bytes) -> Mapping[str, str]:
        return {gateway_tokens.HEADER: gateway_tokens.issue(keys, _about(host, method, path, body))}

    return sign


class EngineGateway:
    """Serves the connections of one gateway."""

    def __init__(self, engine: Engine, keys: Keys, host: str, labels: Mapping[str, str]) -> None:
        """`labels` are those that every container of this installation and host has."""
        self._engine = engine
        self._keys = keys
        self._host = host
        self._labels = labels
        self._tasks: set[asyncio.Task[None]] = set()
        self._streaming: set[asyncio.Task[None]] = set()  # those of them that may go on for hours

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection from its first byte to its last; a callback of asyncio.start_server."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served by a task")
        self._tasks.add(task)
        try:
            keep_alive(writer)
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            logger.info("gateway: a caller left in the middle of its request")
        except asyncio.CancelledError:
            pass  # by `close`; nobody awaits this task, and asyncio would report it
        finally:
            writer.transport.abort()
            self._tasks.discard(task)
            self._streaming.discard(task)

    async def close(self, drain_seconds: float = 0, request_seconds: float = 0) -> None:
        """Return when all connections have ended.

        All have `drain_seconds`; requests that stream nothing have up to `request_seconds` more. The rest is aborted.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(request_seconds):
                while requests := self._tasks - self._streaming:
                    await asyncio.wait(requests)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                request = await self._read(reader)
            answer = await self._answer(request, (reader, writer))
        except (RequestRefusedError, InvalidSignatureError) as refusal:
            logger.warning(
                "gateway: refused a request of %s: %s", _peer(writer), str(refusal) or "its pass is not ours"
            )
            _send(writer, b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        except ExecError as failure:
            _send(writer, _answer_bytes(502, {"message": str(failure)}))
        except TimeoutError:
            logger.warning("gateway: %s did not finish its request", _peer(writer))
        else:
            _send(writer, answer)
        writer.close()
        await writer.wait_closed()  # waits for a slow reader; a lost one is detected by `keep_alive`

    async def _read(self, reader: asyncio.StreamReader) -> GatewayRequest:
        """Return the request. Raises RequestRefusedError and InvalidSignatureError."""
        head = _Head()
        try:
            head.feed(await reader.readuntil(b"\r\n\r\n"))
        except (asyncio.LimitOverrunError, httptools.HttpParserError) as error:
            raise RequestRefusedError(f"its head is not understood: {error}") from error
        about = gateway_tokens.verify(self._keys, head.headers.get(gateway_tokens.HEADER.lower(), ""))
        length = head.headers.get("content-length", "0")
        if "transfer-encoding" in head.headers or not length.isdecimal() or int(length) > BODY_LIMIT:
            raise RequestRefusedError("its body is too long, or its length is not said")
        body = await reader.readexactly(int(length))
        path = head.target.removeprefix(GATEWAY_PREFIX)
        if path == head.target or about != _about(self._host, head.method, path, body):
            raise RequestRefusedError("its pass is for something else")
        plain, _, query = path.partition("?")
        return GatewayRequest(head.method, plain, query, body)

    async def _answer(self, request: GatewayRequest, client: Streams) -> bytes:
        """Return the response, empty where it was streamed already. Raises RequestRefusedError and ExecError."""
        if found := CONTAINER.fullmatch(request.path):
            return await self._of_container(found[1], found[2], request, client)
        if found := HANDLE.fullmatch(request.path):
            (exec_id,) = self._keys.fields(EXEC, found[1])
            return await self._of_exec(f"/exec/{exec_id}", found[2], request, client)
        raise RequestRefusedError("the gateway does not offer it")

    async def _of_container(self, name: str, call: str, request: GatewayRequest, client: Streams) -> bytes:
        answer = await self._engine.request("GET", f"/containers/{name}/json")
        if not answer.is_success:
            return _relayed(answer)
        container = answer.json()
        if not is_of_session(container, self._labels):
            raise RequestRefusedError(f"container {name} is not one of a session of this host")
        path = f"/containers/{container['Id']}"
        match request.method, call:
            case "GET", "json" if not request.query:
                return _answer_bytes(200, {"State": {"Running": bool(container["State"]["Running"])}})
            case "GET", "logs" if TAIL.fullmatch(request.query):
                await self._splice(client, await self._engine.begin("GET", f"{path}/logs?{request.query}"))
                return b""
            case "POST", "exec" if not request.query:
                answer = await self._engine.request("POST", f"{path}/exec", exec_config(request.json()))
                if not answer.is_success:
                    return _relayed(answer)
                return _answer_bytes(201, {"Id": self._keys.sign(EXEC, [str(answer.json()["Id"])])})
        raise RequestRefusedError("the gateway does not offer it")

    async def _of_exec(self, path: str, call: str, request: GatewayRequest, client: Streams) -> bytes:
        match request.method, call:
            case "GET", "json" if not request.query:
                answer = await self._engine.request("GET", f"{path}/json")
                if not answer.is_success:
                    return _relayed(answer)
                return _answer_bytes(200, {key: answer.json().get(key) for key in ("Running", "ExitCode")})
            case "POST", "resize" if SIZE.fullmatch(request.query):
                return _relayed(await self._engine.request("POST", f"{path}/resize?{request.query}"))
            case "POST", "start" if request.json() == {"Detach": True}:
                return _relayed(await self._engine.request("POST", f"{path}/start", {"Detach": True}))
            case "POST", "start" if request.json() in ATTACHED:
                engine = await self._engine.hijack(f"{path}/start", request.json())
                client[1].write(UPGRADED)
                await self._splice(client, engine, can_end_input=not request.json()["Tty"])
                return b""
        raise RequestRefusedError("the gateway does not offer it")

    async def _splice(self, client: Streams, engine: Streams, *, can_end_input: bool = False) -> None:
        if task := asyncio.current_task():
            self._streaming.add(task)
        await splice(client, engine, can_end_input=can_end_input)


def is_of_session(container: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether the inspected container is a session's, with the labels of this installation and host."""
    has = container["Config"]["Labels"] or {}
    session, attempt = has.get(SESSION_LABEL, ""), has.get(ATTEMPT_LABEL, "")
    is_named = attempt.isdecimal() and container["Name"] == f"/{container_name(session, int(attempt))}"
    return is_named and labels.items() <= has.items()


def exec_config(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validated exec configuration. Raises RequestRefusedError for keys or types that are not allowed."""
    for key, value in asked.items():
        if not isinstance(value, EXEC_KEYS.get(key, ())):  # isinstance of no type at all is False
            raise RequestRefusedError(f"an exec may not have {key} as asked")
        if isinstance(value, list) and not all(isinstance(part, str) for part in value):
            raise RequestRefusedError(f"an exec's {key} is a list of texts")
    return dict(asked)


async def splice(client: Streams, engine: Streams, *, can_end_input: bool = False) -> None:
    """Copy bytes both ways, with back-pressure, until one side ends; then abort the engine's connection.

    With `can_end_input` the client's end is only that of the input, and is passed on: the output goes on.
    """
    pumps = [
        asyncio.create_task(_pump(client[0], engine[1])),
        asyncio.create_task(_pump(engine[0], client[1])),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        if can_end_input and not pumps[1].done() and pumps[0].result():
            engine[1].write_eof()
            await asyncio.wait(pumps)
    finally:
        for pump in pumps:
            pump.cancel()
        engine[1].transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Return True at the end of the stream, False when a connection broke."""
    with suppress(ConnectionError):
        while data := await reader.read(HEAD_LIMIT):
            writer.write(data)
            await writer.drain()
        return True
    return False


class _Head:
    """Callbacks of the HTTP parser, which sees the head alone."""

    def __init__(self) -> None:
        self.target = ""
        self.headers: dict[str, str] = {}
        self._parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        self.target += url.decode("ascii", errors="replace")

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        if key in self.headers:
            raise RequestRefusedError(f"it has two {key}")
        self.headers[key] = value.decode("latin-1")

    def feed(self, head: bytes) -> None:
        """Parse a whole head. Raises httptools' errors, and RequestRefusedError."""
        try:
            self._parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserCallbackError as error:
            raise RequestRefusedError(str(error.__context__ or error)) from error

    @property
    def method(self) -> str:
        return str(self._parser.get_method().decode())


def _about(host: str, method: str, path: str, body: bytes) -> list[str]:
    """Return the fields of the gateway token for this request."""
    return ["engine", host, method, path, hashlib.sha256(body).hexdigest()]


def _send(writer: asyncio.StreamWriter, answer: bytes) -> None:
    """Write an answer. Raises ConnectionResetError where the caller has left; uvloop raises what is no OSError."""
    if writer.transport.is_closing():
        raise ConnectionResetError("the caller has left")
    writer.write(answer)


def _peer(writer: asyncio.StreamWriter) -> str:
    address = writer.get_extra_info("peername")
    return str(address[0]) if address else "somebody"


def _relayed(answer: EngineResponse) -> bytes:
    """Return the engine's response reduced to its status and message."""
    if answer.is_success:
        return _answer_bytes(200, {})
    status = answer.status if answer.status in REASONS else 502
    return _answer_bytes(status, {"message": answer.explanation()})


def _answer_bytes(status: int, body: Mapping[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
