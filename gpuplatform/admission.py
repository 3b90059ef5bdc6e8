"""Bounds the requests that Django works on at once, so that overload is a quick 503 and never an error of the pool."""

import asyncio
from typing import Final

from django.utils.translation import gettext

from gpuplatform.unavailable import unavailable
from proxy.asgi import Application
from proxy.asgi_request import Message, Receive, Scope, Send

SLOTS: Final = 16  # requests under way in one process: fewer than the connections of its pool
QUEUE: Final = 128  # requests that wait for a slot
WAIT_SECONDS: Final = 0.8
BUFFER_BYTES: Final = 1024 * 1024  # of a response, which a slow client takes after the slot was released
POLICY: Final = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"  # middleware does not see this page
UNLIMITED: Final = frozenset({"/healthz"})


class Admission:
    """ASGI middleware that gives each request a slot while Django works on it; refuses with 503 what waits too long.

    A response is buffered up to BUFFER_BYTES, so that neither its slot nor its database connection depends on how fast
    the client reads. One that is larger keeps its slot until it is sent.
    """

    def __init__(
        self, application: Application, *, slots: int = SLOTS, queue: int = QUEUE, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._application = application
        self._slots = asyncio.Semaphore(slots)
        self._waiting = 0
        self._queue = queue
        self._wait_seconds = wait_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or refuse it; its body is received first, as slowly as the client sends it."""
        if scope["path"] in UNLIMITED:
            await self._application(scope, receive, send)
            return
        request = await _BufferedRequest.received(receive)
        if not await self._acquire():
            await _refuse(scope, send)
            return
        response = _BufferedResponse(send)
        try:
            await self._application(scope, request.receive, response.send)
        finally:
            self._slots.release()
        await response.flush()

    async def _acquire(self) -> bool:
        """Return whether there was a slot in time."""
        if self._slots.locked() and self._waiting >= self._queue:
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._slots.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True


class _BufferedRequest:
    """The messages of a request, to be received again."""

    def __init__(self, messages: list[Message], receive: Receive) -> None:
        self._messages = messages
        self._receive = receive

    @classmethod
    async def received(cls, receive: Receive) -> "_BufferedRequest":
        """Return the request once its body is complete, or its client gone."""
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        return cls(messages, receive)

    async def receive(self) -> Message:
        """Return the next message: those of the body, then what the server has to tell."""
        return self._messages.pop(0) if self._messages else await self._receive()


class _BufferedResponse:
    """Keeps the messages of a response until `flush`, or sends them on once they are too large."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []
        self._buffered_bytes = 0

    async def send(self, message: Message) -> None:
        """Take the next message."""
        self._messages.append(message)
        self._buffered_bytes += len(message.get("body", b""))
        if self._buffered_bytes > BUFFER_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Send what is kept."""
        messages, self._messages = self._messages, []
        for message in messages:
            await self._send(message)


async def _refuse(scope: Scope, send: Send) -> None:
    response = unavailable(scope["path"], gettext("The server is busy."))
    response["Content-Security-Policy"] = POLICY
    headers = [(name.lower().encode(), value.encode()) for name, value in response.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
