"""The gateway of simulated hosts: the part of the engine's API that terminals and logs use, over their containers.

It asks for no signature, since there is nothing behind it to protect, and listens on loopback alone.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from engine.containers import container_name
from engine.engine import GATEWAY_PREFIX
from hostworker.simulated.runtime import SimulatedContainer, SimulatedContainers
from hostworker.simulated.shell import SimulatedShell

HOST: Final = "127.0.0.1"
HEAD_BYTES: Final = 16 * 1024
READ_BYTES: Final = 64 * 1024
STDOUT: Final = 1
REFUSAL: Final = b"There are no commands in a simulated session.\n"
REFUSED: Final = 126  # exit code
_HEAD: Final = re.compile(rb"(?P<method>[A-Z]+) (?P<path>[^ ?]+)(?:\?(?P<query>\S*))? HTTP/1\.1\r\n")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TAIL: Final = re.compile(r"tail=(\d+)")


class SimulatedGateway:
    """Serves the containers of `registry`; each exec is a shell of its own."""

    def __init__(self, registry: SimulatedContainers) -> None:
        self._registry = registry
        self._execs: dict[str, tuple[SimulatedContainer, int | None]] = {}  # with the exit code

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which carries one request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            found, length = _HEAD.match(head), _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
            if found:
                path = found["path"].decode().removeprefix(GATEWAY_PREFIX)
                query = (found["query"] or b"").decode()
                await self._answer(f"{found['method'].decode()} {path}".split("/"), query, body, (reader, writer))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(
        self, parts: list[str], query: str, body: bytes, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        _, writer = streams
        match parts:
            case ["GET ", "containers", name, "json"]:
                _send(writer, {"State": {"Running": True}} if self._find(name) else None)
            case ["GET ", "containers", name, "logs"]:
                await self._logs(name, query, writer)
            case ["POST ", "containers", name, "exec"] if container := self._find(name):
                exec_id = uuid4().hex
                self._execs[exec_id] = container, None
                _send(writer, {"Id": exec_id}, HTTPStatus.CREATED)
            case ["POST ", "exec", exec_id, "start"] if exec_id in self._execs:
                await self._start(exec_id, json.loads(body), streams)
            case ["POST ", "exec", exec_id, "resize"] if exec_id in self._execs:
                _send(writer, {}, HTTPStatus.CREATED)
            case ["GET ", "exec", exec_id, "json"] if exec_id in self._execs:
                code = self._execs[exec_id][1]
                _send(writer, {"Running": code is None, "ExitCode": code})
            case _:
                _send(writer, None)
        await writer.drain()

    def _find(self, name: str) -> SimulatedContainer | None:
        with self._registry.lock:
            if name in self._registry.by_id:
                return self._registry.by_id[name]
            named = (each for each in self._registry.by_id.values() if container_name(*_key(each)) == name)
            return next(named, None)

    async def _logs(self, name: str, query: str, writer: asyncio.StreamWriter) -> None:
        container, tail = self._find(name), _TAIL.search(query)
        if container is None:
            return _send(writer, None)
        lines = container.program.output(container.age(time.monotonic()))[-int(tail[1]) if tail else 0 :]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.0Z ", time.gmtime()) if "timestamps=1" in query else ""
        frames = b"".join(_frame(f"{stamp}{line}\n".encode()) for line in lines)
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + frames)
        while "follow=1" in query and not writer.is_closing() and self._find(name):
            await writer.drain()
            await asyncio.sleep(1)
            fresh = container.program.output(container.age(time.monotonic()))
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.0Z ", time.gmtime())
            writer.write(b"".join(_frame(f"{stamp}{line}\n".encode()) for line in fresh[len(lines) :]))
            lines = fresh
        return None

    async def _start(
        self, exec_id: str, asked: Mapping[str, Any], streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        reader, writer = streams
        container, _ = self._execs[exec_id]
        if asked.get("Detach"):
            self._execs[exec_id] = container, 0
            return _send(writer, {})
        writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        if not asked.get("Tty"):
            writer.write(_frame(b"1\n") + _frame(REFUSAL, stream=2))
            self._execs[exec_id] = container, REFUSED
            return None
        shell = SimulatedShell(container, time.monotonic)
        try:
            writer.write(shell.begin())
            while not shell.has_ended and (data := await reader.read(READ_BYTES)):
                writer.write(shell.feed(data))
                await writer.drain()
        finally:
            self._execs[exec_id] = container, 0
        return None


def _key(container: SimulatedContainer) -> tuple[str, int]:
    return container.spec.session, container.spec.attempt


def _frame(content: bytes, stream: int = STDOUT) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(content).to_bytes(4) + content


def _send(writer: asyncio.StreamWriter, body: Mapping[str, Any] | None, status: HTTPStatus = HTTPStatus.OK) -> None:
    """Write a response; None is one of a thing that does not exist."""
    if body is None:
        status, body = HTTPStatus.NOT_FOUND, {"message": "No such container"}
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
