"""Limits of request bodies, in front of Django, which spools whatever comes before it asks who sends it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from typing import Final

from django.conf import settings

from proxy.authorization.networks import is_inside
from proxy.counters import ConnectionCounters
from proxy.http.asgi import Application, Message, Receive, Scope, Send
from proxy.pending import source_of
from restapi.problems import MEDIA_TYPE, problem_text

BODY_SECONDS: Final = 60.0  # for the whole of a body
LINGER_SECONDS: Final = 2.0  # for a refused client to read the response, while what it still sends is dropped
BODIES_PER_ADDRESS: Final = 32  # under way at once; a /64 of IPv6 counts as one address
REASONS: Final = {
    408: "The body of the request did not arrive in time.",
    413: "The body of the request is too large.",
    429: "Too many requests of your address are under way.",
}


class BodyLimitError(Exception):
    """A body that is too large or too slow; `http_status` is what it is refused with."""

    def __init__(self, status: int) -> None:
        super().__init__(REASONS[status])
        self.http_status = status


class RequestBodies:
    """ASGI middleware that refuses bodies by size (413), time (408) and number per client address (429).

    The size is Django's DATA_UPLOAD_MAX_MEMORY_SIZE, up to which bodies are kept in memory: none is written to disk.
    Clients in COMPUTE_TRUSTED_PROXIES that name no client of theirs are not counted. Applications that stream large
    bodies are called in front of it.
    """

    def __init__(
        self, application: Application, counters: ConnectionCounters, *, seconds: float = BODY_SECONDS
    ) -> None:
        """`seconds` is the time in which a body must arrive."""
        self._application = application
        self._seconds = seconds
        self._counters = counters
        self._trusted_proxies = [ip_network(each) for each in settings.COMPUTE_TRUSTED_PROXIES]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or refuse its body."""
        length = _announced_length(scope)
        if length == 0:
            await self._application(scope, receive, send)
            return
        source = self._source(scope)
        body = _LimitedBody(receive, self._seconds)
        response = _Response(send)
        try:
            if length is not None and length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
                raise BodyLimitError(413)
            with self._counted(source, body):
                await self._application(scope, body.receive, response.send)
        except BodyLimitError as error:
            if response.is_started:
                raise
            await _refuse(scope, receive, send, error.http_status)

    def _source(self, scope: Scope) -> str:
        address = scope["client"][0] if scope.get("client") else ""
        return "" if not address or is_inside(address, self._trusted_proxies) else source_of(address)

    @contextmanager
    def _counted(self, source: str, body: "_LimitedBody") -> Iterator[None]:
        """Count the body until it is complete, or the request is over. Raises BodyLimitError beyond the limit."""
        if not source:
            yield
            return
        key = f"body {source}"
        if self._counters.count(key) >= BODIES_PER_ADDRESS:
            raise BodyLimitError(429)
        self._counters.add(key)
        body.on_complete = lambda: self._counters.remove(key)
        try:
            yield
        finally:
            body.complete()


class _LimitedBody:
    """Receives a body and raises BodyLimitError once it is too large or too slow."""

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive = receive
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._received_bytes = 0
        self._is_complete = False
        self.on_complete: Callable[[], None] | None = None

    async def receive(self) -> Message:
        """Return the next message of the server."""
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise BodyLimitError(408) from None
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise BodyLimitError(413)
        if not message.get("more_body"):
            self.complete()
        return message

    def complete(self) -> None:
        """Stop counting the body; no-op if that was done already."""
        if not self._is_complete and self.on_complete:
            self.on_complete()
        self._is_complete = True


class _Response:
    """Notices whether a response has started."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        self.is_started = True
        await self._send(message)


def _announced_length(scope: Scope) -> int | None:
    """Return the length of the request's body as announced, 0 without one; None where only its end will tell."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int) -> None:
    is_api = scope["path"].startswith("/api/")
    reason = REASONS[status]
    content = (problem_text(status, reason) if is_api else f"{reason}\n").encode()
    kind = MEDIA_TYPE.encode() if is_api else b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(content)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body"})
