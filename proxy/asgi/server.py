"""The ASGI server: middleware that serves the apps' hosts, and leaves all others to the application behind it.

It runs under any ASGI server; in return, every byte passes through that server's own parser and queues.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum

from proxy.asgi.request import MAX_BUFFERED_BYTES, Receive, Scope, Send, authorize_and_run, to_request
from proxy.asgi.websocket import serve_websocket
from proxy.authorization.authorizer import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane
from proxy.http.headers import RequestHead
from proxy.http.response_parser import ResponseHead
from proxy.http.responses import (
    ACCESS_ENDED,
    HEAD_TOO_LARGE,
    RESPONSE_TIMEOUT,
    UPSTREAM_FAILED,
    UPSTREAM_UNREACHABLE,
    LocalResponse,
)
from proxy.site import Site
from proxy.upstream.connection import UpstreamConnection

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class AppProxyMiddleware:
    """Serves the apps' hosts; `plane` is called for the first request, in the running loop."""

    def __init__(self, site: Site, plane: Callable[[], Awaitable[DataPlane]], otherwise: Application) -> None:
        self._site = site
        self._plane = plane
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a websocket."""
        if scope["type"] not in ("http", "websocket") or not self._is_for_app(scope):
            await self._otherwise(scope, receive, send)
            return
        plane = await self._plane()
        if scope["type"] == "websocket":
            await serve_websocket(plane, scope, receive, send)
        else:
            await _serve_request(plane, scope, receive, send)

    def _is_for_app(self, scope: Scope) -> bool:
        return any(name == b"host" and self._site.is_of_apps(value) for name, value in scope["headers"])


async def _serve_request(plane: DataPlane, scope: Scope, receive: Receive, send: Send) -> None:
    request = to_request(scope)
    if _size(request) > plane.limits.head_bytes:
        await _respond(HEAD_TOO_LARGE, request, send)
        return
    response = await authorize_and_run(plane, scope, request, AsgiExchange, receive, send)
    if response:
        await _respond(response, request, send)


async def _respond(response: LocalResponse, request: RequestHead, send: Send) -> None:
    headers = [(name.lower(), value) for name, value in response.headers]
    if response.closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == b"HEAD" else response.body})


def _size(request: RequestHead) -> int:
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


class _State(Enum):
    WAITING = "waiting"  # for the response
    FAILED = "failed"  # before the response
    STREAMING = "streaming"
    COMPLETE = "complete"  # received; some of it may have to be sent yet
    TRUNCATED = "truncated"  # failed within the response


class AsgiExchange:
    """One request of an ASGI server, and its response."""

    def __init__(self, plane: DataPlane, slot: ConnectionSlot, forward: ForwardDecision) -> None:
        self.slot: ConnectionSlot | None = slot
        self.deadline = float("inf")
        self._plane = plane
        self._pool = slot.pool
        self._forward = forward
        self._upstream: UpstreamConnection | None = None
        self._is_reused = False  # the upstream connection was idle, and may have ended unnoticed
        self._state = _State.WAITING
        self._failure = UPSTREAM_FAILED  # the response if FAILED
        self._head: ResponseHead | None = None
        self._body: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._changed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()

    async def run(self, receive: Receive, send: Send) -> LocalResponse | None:
        """Forward the request and send the response; return one of ours if the app sent none."""
        upload: asyncio.Task[None] | None = None
        try:
            await self._connect(may_reuse=self._forward.method == b"GET" and self._forward.length == 0)
            upload = asyncio.create_task(self._upload(receive))
            await self._changed.wait()
            if self._state is _State.FAILED and self._failure is UPSTREAM_FAILED and self._is_reused:
                self._state = _State.WAITING
                self._changed.clear()
                await self._connect(may_reuse=False)
                await self._changed.wait()
            if self._head is None:
                return self._failure
            await self._download(self._head, send)
            return None
        except TimeoutError:
            return RESPONSE_TIMEOUT
        except OSError:
            return UPSTREAM_UNREACHABLE
        finally:
            if upload:
                upload.cancel()

    def close(self) -> None:
        """Close the upstream connection if the response is not complete."""
        if self._upstream:
            self._upstream.abort()
            self._upstream = None

    async def _connect(self, *, may_reuse: bool) -> None:
        forward = self._forward
        loop = asyncio.get_running_loop()
        idle = self._pool.take_idle(loop.time()) if may_reuse else None
        self._is_reused = idle is not None
        upstream = self._upstream = idle or await self._pool.connect()
        is_head, is_complete = forward.method == b"HEAD", forward.length == 0
        upstream.send(self, forward.to_bytes(), is_head=is_head, may_upgrade=False, is_complete=is_complete)
        self.deadline = loop.time() + self._plane.limits.response_seconds

    async def _upload(self, receive: Receive) -> None:
        """Send the request's body, then wait for the client to leave."""
        is_chunked = self._forward.length is None
        more = self._forward.length != 0
        while message := await receive():
            if message["type"] == "http.disconnect":
                self.abort()
                return
            body, more_follows = message.get("body", b""), message.get("more_body", False)
            if not (more and self._upstream):
                continue
            more = more_follows
            await self._may_write.wait()
            if self._upstream:
                chunk = b"%x\r\n%b\r\n" % (len(body), body) if is_chunked and body else body
                self._upstream.write(chunk + (b"0\r\n\r\n" if is_chunked and not more else b""), is_complete=not more)

    async def _download(self, head: ResponseHead, send: Send) -> None:
        """Send the response as it comes; returning early tells the server that it is truncated."""
        headers = self._plane.authorizer.response_headers(self._forward.principal, head.headers)
        lower = [(name.lower(), value) for name, value in headers]
        await send({"type": "http.response.start", "status": head.status, "headers": lower})
        while self._state is not _State.TRUNCATED:
            if self._body:
                data = self._body.popleft()
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self._drained(len(data))
            elif self._state is _State.COMPLETE:
                await send({"type": "http.response.body", "body": b""})
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    def _drained(self, count: int) -> None:
        was_full = self._buffered_bytes > MAX_BUFFERED_BYTES
        self._buffered_bytes -= count
        if was_full and self._buffered_bytes <= MAX_BUFFERED_BYTES and self._upstream:
            self._upstream.resume_reading()

    def _set_state(self, state: _State) -> None:
        self._state = state
        self._changed.set()

    # --- the response

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Keep the head."""
        self._head = head
        self.deadline = float("inf")
        if first:
            self.response_body(first)
        self._set_state(_State.STREAMING)

    def response_body(self, data: bytes) -> None:
        """Buffer the data until the server takes it; pause the app above the limit."""
        self._body.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > MAX_BUFFERED_BYTES and self._upstream:
            self._upstream.pause_reading()
        self._changed.set()

    def response_ended(self) -> None:
        """Complete the response."""
        self._upstream = None
        self._set_state(_State.COMPLETE)

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Fail: the parser refuses an upgrade that was not asked for."""
        raise AssertionError("a plain request upgrades to nothing")

    def upstream_lost(self, *, is_malformed: bool) -> None:
        """Fail, or truncate the response."""
        self._upstream = None
        self._set_state(_State.TRUNCATED if self._head else _State.FAILED)

    def upstream_paused(self) -> None:
        """Stop reading from the client."""
        self._may_write.clear()

    def upstream_resumed(self) -> None:
        """Read on."""
        self._may_write.set()

    # --- the data plane

    def expire(self) -> None:
        """Give up an app that does not start its response in time."""
        self._fail(RESPONSE_TIMEOUT)

    def abort(self) -> None:
        """End at once."""
        self._fail(ACCESS_ENDED)

    def shut_down(self) -> None:
        """Do nothing: the ASGI server waits for responses under way."""

    def _fail(self, failure: LocalResponse) -> None:
        self.close()
        self._failure = failure
        self._may_write.set()
        self._set_state(_State.TRUNCATED if self._head else _State.FAILED)
