"""The socket on which the supervisor of `make up` is asked about its services, by this user alone."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from operations.services.base import MAX_LINES, ServiceAction, ServiceControlError, ServiceState
from operations.supervisor import socket_folder


class Controlled(Protocol):
    """What the socket gives access to."""

    async def states(self) -> list[ServiceState]:
        """Return all services."""

    async def act(self, action: ServiceAction, name: str) -> None:
        """Carry out the action, and return once that is done. Raises ServiceControlError."""

    async def log(self, name: str, lines: int) -> list[str]:
        """Return the newest lines of a service's output. Raises ServiceControlError."""


@asynccontextmanager
async def listening(path: Path, controlled: Controlled) -> AsyncIterator[None]:
    """Serve requests at `path` during the block; see `service_control.supervisor`."""
    socket_folder.ensure(path.parent)
    path.unlink(missing_ok=True)  # of a supervisor that was killed; the lock of `make up` holds off a second one
    before = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(_connection_of(controlled), path)
    finally:
        os.umask(before)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


def _connection_of(controlled: Controlled) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):  # the caller left, or its line has no end
            request = await reader.readline()
            writer.write(json.dumps(await _answer(controlled, request)).encode() + b"\n")
            await writer.drain()
        writer.close()

    return serve


async def _answer(controlled: Controlled, line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        match request["action"]:
            case "status":
                return {"states": [state.as_json() for state in await controlled.states()]}
            case "log":
                lines = min(int(request["lines"]), MAX_LINES)
                return {"lines": await controlled.log(str(request["service"]), lines)}
            case action:
                await controlled.act(ServiceAction(action), str(request["service"]))
                return {}
    except ServiceControlError as error:
        return {"error": str(error)}
    except (ValueError, TypeError, KeyError):
        return {"error": "the request is not understood"}
