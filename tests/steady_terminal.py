"""A terminal in which somebody types all the time, and which connects again by itself, as the page's does."""

import asyncio
import json
import time
from contextlib import suppress
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.steady_thread import SteadyThread
from tests.wait import SECONDS

PAUSE_SECONDS: Final = 0.1  # between two lines, and between two attempts to connect


class SteadyTerminal(SteadyThread):
    """The shell is known by a variable that only it has."""

    def __init__(self, url: str, session: str, token: str) -> None:
        self.longest_gap_s = 0.0  # between two answers of the shell
        self.connections = 0
        self._address = f"{url.replace('http', 'ws', 1)}/ws/sessions/{session}/terminal/"
        self._headers = {"Authorization": f"Token {token}"}
        self._output = b""
        self._answered_at: float | None = None
        super().__init__()

    def run(self) -> None:
        """Type until it is finished; a round is a line that the shell has answered. Another shell is an error."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        while not self.stopped.is_set():
            with suppress(OSError, InvalidHandshake, ConnectionClosed):
                async with connect(self._address, additional_headers=self._headers) as websocket:
                    self._output = b""
                    if not self.connections:
                        await self._answer(websocket, "secret=4''2; echo sa''id", "said")
                    self.connections += 1
                    await self._type(websocket)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _type(self, websocket: ClientConnection) -> None:
        while not self.stopped.is_set():
            number = self.rounds + 1
            await self._answer(websocket, f"echo is:$secret:{number}:", f"is:42:{number}:")
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - (self._answered_at or now))
            self._answered_at = now
            self.rounds = number
            await asyncio.sleep(PAUSE_SECONDS)

    async def _answer(self, websocket: ClientConnection, line: str, answer: str) -> None:
        """Type a line, and return once its answer came. Raises ConnectionClosed, AssertionError."""
        await websocket.send(f"{line}\r".encode())
        try:
            async with asyncio.timeout(SECONDS):
                while answer.encode() not in self._output:
                    await self._receive(websocket)
        except TimeoutError:
            raise AssertionError(f"no {answer} but {self._output[-500:]!r}") from None
        self._output = b""

    async def _receive(self, websocket: ClientConnection) -> None:
        message = await websocket.recv()
        if isinstance(message, bytes):
            self._output += message
            await websocket.send(json.dumps({"ack": len(message)}))
