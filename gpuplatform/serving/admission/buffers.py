"""Requests and responses in memory, so that a slot of Django's depends on no client's speed."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from proxy.http.asgi import Message, Receive, Send

BUFFER_BYTES: Final = 1024 * 1024  # of a response, which a slow client takes after the slot was released
EVENTS: Final = b"text/event-stream"
DISCONNECT: Final = "http.disconnect"


class BufferedResponse:
    """Holds the messages of a response until `flush`, or sends them on once they are too large.

    `on_end` is called once: when the response is made, or with the beginning of a stream of events.
    """

    def __init__(self, send: Send, *, on_end: Callable[[], None]) -> None:
        self._send = send
        self._on_end: Callable[[], None] | None = on_end
        self._messages: list[Message] = []
        self._buffered_bytes = 0
        self._is_discarded = False
        self._is_stream = False  # of events, which are sent as they come
        self.has_begun = False
        self.is_sent_on = asyncio.Event()

    async def send(self, message: Message) -> None:
        """Take the next message."""
        if self._is_discarded:
            return
        self.has_begun = True
        self._messages.append(message)
        self._buffered_bytes += len(message.get("body", b""))
        if message["type"] == "http.response.start" and (b"Content-Type", EVENTS) in message["headers"]:
            self._is_stream = True
            self.end()
        if self._is_stream or self._buffered_bytes > BUFFER_BYTES:
            self.is_sent_on.set()
            await self.flush()

    def end(self) -> None:
        """Note that Django is done with the request; no-op after the first call."""
        on_end, self._on_end = self._on_end, None
        if on_end:
            on_end()

    def discard(self) -> None:
        """Send nothing, neither what is held nor what comes."""
        self._is_discarded = True
        self._messages = []

    async def flush(self) -> None:
        """Send what is held."""
        messages, self._messages = self._messages, []
        for message in messages:
            await self._send(message)


class BufferedRequest:
    """The messages of a request, to be received again."""

    def __init__(self, messages: list[Message], receive: Receive) -> None:
        self._messages = messages
        self._receive = receive
        self.has_left = messages[-1]["type"] == DISCONNECT

    @classmethod
    async def received(cls, receive: Receive) -> "BufferedRequest":
        """Return the request once its body is complete, or its client gone."""
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        return cls(messages, receive)

    @property
    def body(self) -> bytes:
        """The body, as far as it has not been received again."""
        return b"".join(message.get("body", b"") for message in self._messages)

    @property
    def size_bytes(self) -> int:
        """The size of the body."""
        return sum(len(message.get("body", b"")) for message in self._messages)

    async def receive(self, response: BufferedResponse) -> Message:
        """Return the next message of the body; then, while the response is sent on, what the server has to say.

        Before that nobody is told that the client has left: Django would take the request for ended, while the thread
        that works on it goes on.
        """
        if self._messages:
            return self._messages.pop(0)
        await response.is_sent_on.wait()
        return await self._receive()

    async def wait_for_end_or(self, event: asyncio.Future[bool], seconds: float) -> None:
        """Wait until the event, until the client leaves (`has_left`), or until the time is over."""
        leaving = asyncio.create_task(self._receive_end())
        waiting: set[asyncio.Future[Any]] = {event, leaving}
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()

    async def _receive_end(self) -> None:
        message = await self._receive()
        self.has_left = message["type"] == DISCONNECT
