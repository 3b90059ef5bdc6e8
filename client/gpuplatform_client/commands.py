"""A command in a session over the platform's websocket: input, output, errors and the exit code."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gpuplatform_client.errors import ClientError, UnreachableServerError
from gpuplatform_client.http.transport import request_headers
from gpuplatform_client.terminal import MAX_UNCONFIRMED_BYTES, refusal, socket_address

ERRORS: Final = 2  # first byte of a frame of errors; others are output


class CommandBrokenError(ClientError):
    """The command ended without an exit code, as its session or the connection did."""


class RemoteCommand:
    """A command in a session, which ends with the connection."""

    def __init__(self, url: str, token: str, session_id: str, write: Callable[[bytes, bool], None]) -> None:
        """`write` gets output, and whether it is of errors."""
        self._address = socket_address(url, session_id, "exec")
        self._headers = request_headers(token)
        self._write = write
        self._unconfirmed = 0
        self._may_send = asyncio.Event()
        self._may_send.set()

    async def run(self, command: str, given: AsyncIterator[bytes]) -> int:
        """Run a line of the shell with this input and return its exit code.

        Raises ApiError, UnreachableServerError, and CommandBrokenError, and what `write` raises.
        """
        async with await self._connected() as socket:
            with suppress(ConnectionClosed):  # which says why there is no such command
                await socket.send(json.dumps({"command": command}))
            sending = asyncio.create_task(self._send(socket, given))
            try:
                code = await self._receive(socket)
            finally:
                sending.cancel()
        if code is None:
            raise CommandBrokenError(socket.close_reason or "The connection broke, and the command ended with it.")
        return code

    async def _connected(self) -> ClientConnection:
        try:
            return await connect(self._address, additional_headers=self._headers, max_size=None)
        except InvalidStatus as error:
            raise refusal(error) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise UnreachableServerError(f"The session cannot be reached: {error}") from error

    async def _receive(self, socket: ClientConnection) -> int | None:
        """Write what comes until the exit code; None if the connection ends before."""
        with suppress(ConnectionClosed):
            async for message in socket:
                if isinstance(message, bytes):
                    self._write(message[1:], message[0] == ERRORS)
                    with suppress(ConnectionClosed):  # what came before the end is still to be read
                        await socket.send(json.dumps({"ack": len(message) - 1}))
                    continue
                control = json.loads(message)
                if "exit" in control:
                    return int(control["exit"])
                self._unconfirmed -= int(control.get("ack", 0))
                if self._unconfirmed < MAX_UNCONFIRMED_BYTES:
                    self._may_send.set()
        return None

    async def _send(self, socket: ClientConnection, given: AsyncIterator[bytes]) -> None:
        with suppress(ConnectionClosed):
            async for data in given:
                await self._may_send.wait()
                self._unconfirmed += len(data)
                if self._unconfirmed >= MAX_UNCONFIRMED_BYTES:
                    self._may_send.clear()
                await socket.send(data)
            await socket.send(json.dumps({"eof": True}))
