"""A browser's side of a terminal's websocket, through the whole ASGI application."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.db import connections
from django.test import Client

from accounts.models import User
from gpuplatform.asgi import platform_with
from proxy.counters import LocalCounters
from tests.wait import SECONDS

# Waits in the container's shell for a window of 132 columns and 43 rows: sizes overtake input, and are overtaken.
WHEN_RESIZED = "until busybox stty size | grep -q '43 132'; do sleep 0.05; done; "


class TerminalClient:
    """Speaks the protocol of sessions/terminal/messages.py; confirms output unless `confirms` is False."""

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator
        self.confirms = True
        self.received = 0
        self.confirmed_input = 0
        self.not_running: dict[str, str] = {}
        self.close: tuple[int, str] | None = None

    async def type(self, text: str) -> None:
        """Send keystrokes."""
        await self.communicator.send_input({"type": "websocket.receive", "bytes": text.encode()})

    async def tell(self, message: object) -> None:
        """Send a control message."""
        await self.communicator.send_input({"type": "websocket.receive", "text": json.dumps(message)})

    async def output(self) -> bytes:
        """Return the next output; empty when the server closed, whose code and reason are then in `close`."""
        while True:
            event = await self.communicator.receive_output(SECONDS)
            if event["type"] == "websocket.close":
                self.close = event["code"], event.get("reason", "")
                return b""
            if data := event.get("bytes"):
                self.received += len(data)
                if self.confirms:
                    await self.tell({"ack": len(data)})
                return bytes(data)
            message = json.loads(event["text"])
            self.confirmed_input += message.get("ack", 0)
            self.not_running = message if "ended" in message else self.not_running

    async def is_silent(self) -> bool:
        """Return whether a second passes without output."""
        return bool(await self.communicator.receive_nothing(1.0))

    async def read_until(self, text: str) -> str:
        """Return the output up to and including `text`."""
        output = b""
        async with asyncio.timeout(SECONDS):
            while text.encode() not in output:
                data = await self.output()
                assert data, f"closed {self.close} before {text!r}: {output!r}"
                output += data
        return output.decode(errors="replace")

    async def closed(self) -> tuple[int, str]:
        """Return code and reason once the server closes."""
        while self.close is None:
            await self.output()
        return self.close


@asynccontextmanager
async def terminal(
    session_id: str, cookie: str = "", origin: str = "http://localhost", token: str = "", kind: str = "terminal"
) -> AsyncIterator[TerminalClient]:
    """Open the terminal of a session, or another `kind` of websocket, as a browser with this login cookie would."""
    communicator: Any = ApplicationCommunicator(
        platform_with(LocalCounters()),
        {
            "type": "websocket",
            "path": f"/ws/sessions/{session_id}/{kind}/",
            "query_string": b"",
            "headers": [
                *((b"host", b"localhost"), (b"origin", origin.encode()), (b"cookie", cookie.encode())),
                *([(b"authorization", f"Token {token}".encode())] if token else []),
            ],
            "subprotocols": [],
        },
    )
    client = TerminalClient(communicator)
    try:
        await communicator.send_input({"type": "websocket.connect"})
        answer = await communicator.receive_output(SECONDS)
        if answer["type"] == "websocket.close":
            client.close = answer.get("code", 1000), "refused"
        yield client
    finally:
        await communicator.send_input({"type": "websocket.disconnect", "code": 1001})
        await communicator.wait(SECONDS)
        await sync_to_async(connections.close_all)()


def cookie_of(user: User) -> str:
    """Return the header that signs `user` in."""
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
