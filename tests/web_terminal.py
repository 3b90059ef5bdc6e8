"""A browser's end of a terminal: a websocket at a running web process, which confirms output as the page does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.wait import SECONDS


class WebTerminal:
    """What a person sees and types."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket
        self._output = bytearray()  # received and not yet taken

    async def type(self, text: str) -> None:
        """Send keystrokes."""
        await self._websocket.send(text.encode())

    async def receive(self, limit: int) -> bytes:
        """Return the next output, at most `limit` bytes of it. Raises ConnectionClosed."""
        while not self._output:
            await self._fill()
        return self._take(limit)

    async def read_until(self, text: str) -> bytes:
        """Return the output up to and with `text`."""
        async with asyncio.timeout(SECONDS):
            while (found := self._output.find(text.encode())) < 0:
                await self._fill()
        return self._take(found + len(text.encode()))

    async def run(self, command: str, answer: str) -> None:
        """Type a command and return once its answer came."""
        await self.type(f"{command}\r")
        await self.read_until(answer)

    async def closed(self) -> int | None:
        """Return the code with which the server closes."""
        async with asyncio.timeout(SECONDS):
            try:
                while True:
                    await self._fill()
            except ConnectionClosed:
                return self._websocket.close_code

    async def _fill(self) -> None:
        message = await self._websocket.recv()
        if isinstance(message, bytes):
            self._output += message
            await self._websocket.send(json.dumps({"ack": len(message)}))

    def _take(self, count: int) -> bytes:
        taken = bytes(self._output[:count])
        del self._output[:count]
        return taken


@asynccontextmanager
async def web_terminal(url: str, session_id: str, cookie: str) -> AsyncIterator[WebTerminal]:
    """Open a session's terminal at the web process at `url`, signed in by the header `cookie`.

    Offers compression, as browsers do.
    """
    address = f"{url.replace('http', 'ws', 1)}/ws/sessions/{session_id}/terminal/"
    headers = {"Cookie": cookie, "Origin": url}
    async with connect(address, additional_headers=headers, open_timeout=SECONDS, ping_interval=None) as websocket:
        yield WebTerminal(websocket)
