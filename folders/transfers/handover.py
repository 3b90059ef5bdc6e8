"""ASGI middleware by which a view answers a request, and leaves the bytes of a body to a coroutine.

The view runs as any other, with all of Django's middleware: who asks, may they, is the request well-formed. With its
response it hands over (`hand_over`) an `IncomingBody` or `OutgoingBody`. Bodies thus never pass through Django, which
would store an upload in a temporary file first, and occupy a thread as long as a download lasts.
"""

import asyncio
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from folders.transfers.threads import in_thread
from proxy.http.asgi import Application, Message, Receive, Scope, Send

KEY: Final = "folders.transfer"  # in the scope: a Handover
PATH: Final = re.compile(r"/api/v1/folders/[^/]+/(?:(uploads)/(?:[^/]+/)?|download/|zip/)\Z")
LINGER_SECONDS: Final = 5.0  # for which the body of a refused request is still read
UPLOAD_LINGER_SECONDS: Final = (
    600.0  # the same for an upload that was accepted first: browsers send all of it, then read
)
FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
METHOD_OVERRIDE: Final = b"x-http-method-override"  # of tus, for networks that let only GET and POST pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an incoming body: changes to the view's response."""

    status: int = 0  # of a refusal, whose content is `body`; 0: the body was taken
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class ClientGoneError(Exception):
    """The client has closed the connection before the end of its body."""


class IncomingBody(ABC):
    """Takes the body of a request."""

    @abstractmethod
    async def take(self, receive: Receive) -> Outcome:
        """Take it. Raises ClientGoneError."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held, if that was not done yet; called in a thread."""


class OutgoingBody(ABC):
    """Gives the body of a response; `length_bytes` is None where that is not known."""

    length_bytes: int | None

    @abstractmethod
    async def give(self, scope: Scope, send: Send) -> None:
        """Send it all. Raises ConnectionError if the client has closed the connection, any error if it must be cut."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; called in a thread."""


Body = IncomingBody | OutgoingBody


class Handover:
    """What middleware and view tell each other about a request. The view runs in a thread, which may outlive it."""

    def __init__(self) -> None:
        self.has_body = False  # of an upload, where the view itself sees no body
        self.body: Body | None = None  # handed over by the view
        self._is_over = False
        self._guard = threading.Lock()

    def put(self, body: Body) -> None:
        """Take the body over from the view; closes it if the request is over by now."""
        with self._guard:
            self.body = body
            is_over = self._is_over
        if is_over:
            body.close()

    def end(self) -> None:
        """Close the body, and whatever the view still hands over."""
        with self._guard:
            self._is_over = True
        if self.body:
            in_thread(self.body.close)  # goes on by itself: a file system that hangs must not hold up this task


def hand_over(request: Any, body: Body) -> None:
    """Have the middleware take or give the body of Django's or REST framework's request; it closes it in any case."""
    request.scope[KEY].put(body)


def has_body(request: Any) -> bool:
    """Return whether the client sends a body, to be taken by an `IncomingBody`."""
    return bool(request.scope[KEY].has_body)


class TransferMiddleware:
    """Serves requests whose views may hand bodies over; withholds the bodies of uploads from Django."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        match = PATH.search(scope["path"]) if scope["type"] == "http" else None
        if not match:
            await self._application(scope, receive, send)
            return
        handover = Handover()
        response = _Response(handover, send)
        scope = {**scope, KEY: handover}
        view_receive = receive
        if match[1]:
            handover.has_body = _announces_body(scope)
            scope |= {
                "method": _method(scope),
                "headers": [pair for pair in scope["headers"] if pair[0] not in FRAMING],
            }
            view_receive = _NoBody().receive
        try:
            await self._application(scope, view_receive, response.send)
            if not response.start:  # it was sent, or the client has gone
                return
            if handover.body:
                await _transfer(handover.body, response.start, scope, receive, send)
            else:
                await _refuse(response.start, response.content, _RequestBody(receive), send)
        finally:
            handover.end()


def _announces_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""


def _method(scope: Scope) -> str:
    """Return the request's method, or that which a POST says instead."""
    override = dict(scope["headers"]).get(METHOD_OVERRIDE, b"").decode("latin-1").upper()
    return override if scope["method"] == "POST" and override in ("PATCH", "DELETE") else str(scope["method"])


class _NoBody:
    """Django's side of a request whose body it is not to read."""

    def __init__(self) -> None:
        self._is_read = False

    async def receive(self) -> Message:
        if self._is_read:
            await asyncio.Event().wait()  # Django listens for the client's end until it has responded
        self._is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}


class _Response:
    """Passes the response of a view on, or stores it if the request or the response has a body apart from Django."""

    def __init__(self, handover: Handover, send: Send) -> None:
        self._handover = handover
        self._send = send
        self.start: Message = {}
        self.content = b""

    async def send(self, message: Message) -> None:
        if not (self._handover.body or self._handover.has_body):
            await self._send(message)
        elif message["type"] == "http.response.start":
            self.start = message
        else:
            self.content += message.get("body", b"")


class _RequestBody:
    """Receives a body, and notices its end."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_read = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.is_read = not message.get("more_body", False)
        return message


async def _refuse(
    start: Message, content: bytes, body: _RequestBody, send: Send, linger_seconds: float = LINGER_SECONDS
) -> None:
    """Send a response to a request whose body is not taken, and close the connection behind it.

    If it were closed while the client still sends, the client's system would drop the response (RFC 9112, section 9.6).
    So what it sends is read for a while.
    """
    headers = _with(start["headers"], {b"content-length": b"%d" % len(content), b"connection": b"close"})
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(linger_seconds):
            while not body.is_read:
                await body.receive()
    await send({"type": "http.response.body"})


async def _transfer(body: Body, start: Message, scope: Scope, receive: Receive, send: Send) -> None:
    if isinstance(body, OutgoingBody):
        length = {} if body.length_bytes is None else {b"content-length": str(body.length_bytes).encode()}
        await send({**start, "headers": _with(start["headers"], length)})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
        else:
            await _give(body, scope, receive, send)
        return
    request_body = _RequestBody(receive)
    try:
        outcome = await body.take(request_body.receive)
    except ClientGoneError:
        return
    replaced = {name.lower().encode(): value.encode() for name, value in outcome.headers.items()}
    if outcome.status:
        refused = {**start, "status": outcome.status, "headers": _with(start["headers"], replaced)}
        await in_thread(body.close)  # another request may write to the file
        await _refuse(refused, outcome.body, request_body, send, UPLOAD_LINGER_SECONDS)
        return
    if start["status"] != HTTPStatus.NO_CONTENT:
        replaced[b"content-length"] = b"0"
    await send({**start, "headers": _with(start["headers"], replaced)})
    await send({"type": "http.response.body", "body": b""})


def _with(headers: Iterable[tuple[bytes, bytes]], replaced: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers with some replaced, and without the length that Django gave the body of the view."""
    others = [(name, value) for name, value in headers if name.lower() not in {b"content-length", *replaced}]
    return [*others, *replaced.items()]


async def _give(body: OutgoingBody, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the body until it ends or the client is gone, which `send` does not tell."""
    giving = asyncio.ensure_future(body.give(scope, send))
    gone = asyncio.ensure_future(_client_gone(receive))
    try:
        await asyncio.wait({giving, gone}, return_when=asyncio.FIRST_COMPLETED)
        if giving.done() and isinstance(giving.exception(), ConnectionError | TimeoutError):
            await gone
        elif giving.done():
            giving.result()
    finally:
        giving.cancel()
        gone.cancel()
        await asyncio.gather(giving, gone, return_exceptions=True)


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
