"""The middleware of transfers, called as an ASGI server would."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from folders.files.downloads.byte_range import ByteRange
from folders.transfers.handover import KEY, OutgoingBody, TransferMiddleware
from folders.transfers.outgoing import FileBody
from proxy.http.asgi import Message, Receive, Scope, Send
from tests.wait import eventually

SCOPE = {"type": "http", "path": "/api/v1/folders/abc/download/", "method": "GET", "headers": []}


class RecordedBody(OutgoingBody):
    """A body of two chunks, or of one after which it fails; notes that it was closed."""

    length_bytes = None

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.is_closed = False

    async def give(self, scope: Scope, send: Send) -> None:
        """Send the chunks."""
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        if self._error:
            raise self._error
        await send({"type": "http.response.body", "body": b"two"})

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


class ServerSide:
    """The server's side of one request."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.is_gone = asyncio.Event()

    async def receive(self) -> Message:
        """Return the end of the connection once it has ended."""
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Record the message."""
        self.sent.append(message)


async def respond(send: Send) -> None:
    """Respond as a view does that has handed a body over."""
    headers = [(b"content-length", b"0"), (b"x-other", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def test_response_gets_the_body_that_was_handed_over() -> None:
    body, server = RecordedBody(), ServerSide()

    async def view(scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY].put(body)
        await respond(send)

    await TransferMiddleware(view)(dict(SCOPE), server.receive, server.send)
    assert server.sent[0]["headers"] == [(b"x-other", b"1")]
    assert [message["body"] for message in server.sent[1:]] == [b"one", b"two"]
    await eventually(lambda: body.is_closed)


async def test_failing_body_cuts_the_connection_and_is_closed() -> None:
    body, server = RecordedBody(EOFError("shorter")), ServerSide()

    async def view(scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY].put(body)
        await respond(send)

    with pytest.raises(EOFError):
        await TransferMiddleware(view)(dict(SCOPE), server.receive, server.send)
    await eventually(lambda: body.is_closed)


async def test_client_that_goes_ends_the_body() -> None:
    server = ServerSide()

    class Endless(RecordedBody):
        async def give(self, scope: Scope, send: Send) -> None:
            server.is_gone.set()
            await asyncio.Event().wait()

    body = Endless()

    async def view(scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY].put(body)
        await respond(send)

    await TransferMiddleware(view)(dict(SCOPE), server.receive, server.send)
    await eventually(lambda: body.is_closed)


async def test_body_of_a_view_that_outlives_its_request_is_closed() -> None:
    body, server = RecordedBody(), ServerSide()
    scopes: list[Any] = []

    async def view(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)  # Django gives the request up when the client goes; a view's thread goes on

    await TransferMiddleware(view)(dict(SCOPE), server.receive, server.send)
    scopes[0][KEY].put(body)
    assert body.is_closed
    assert not server.sent


async def test_file_is_sent_by_servers_without_zero_copy(tmp_path: Path) -> None:
    data, server = os.urandom(1_000_000), ServerSide()
    (tmp_path / "a").write_bytes(data)
    body = FileBody(os.open(tmp_path / "a", os.O_RDONLY), ByteRange(1000, 900_000))
    await body.give({}, server.send)
    assert b"".join(message["body"] for message in server.sent) == data[1000:900_000]
    assert not server.sent[-1]["more_body"]
    os.truncate(tmp_path / "a", 2000)
    with pytest.raises(EOFError):
        await body.give({}, server.send)
    body.close()
