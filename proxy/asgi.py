"""The portable carrier: an ASGI application that serves the apps' hosts and leaves all others to the one behind it.

It runs under any ASGI server, at the cost of every byte passing through the server's own parsing and queues.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from proxy.asgi_request import AHEAD_BYTES, Receive, Scope, Send, authorize_and_run, to_request
from proxy.asgi_websocket import relay
from proxy.authorization import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane
from proxy.exchange import BROKEN, ENDED, SILENT, TOO_LONG, UNREACHABLE
from proxy.headers import RequestHead
from proxy.responses import LocalResponse
from proxy.site import Site
from proxy.upstream_connection import ResponseHead, UpstreamConnection

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class AppProxyMiddleware:
    """Serves the apps' hosts; `plane` is asked for when the first request comes, in the loop that runs."""

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
            await relay(plane, scope, receive, send)
        else:
            await _serve(plane, scope, receive, send)

    def _is_for_app(self, scope: Scope) -> bool:
        return any(name == b"host" and self._site.is_of_apps(value) for name, value in scope["headers"])


async def _serve(plane: DataPlane, scope: Scope, receive: Receive, send: Send) -> None:
    request = to_request(scope)
    if _size(request) > plane.limits.head_bytes:
        await _respond(TOO_LONG, request, send)
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


class AsgiExchange:
    """One request of an ASGI server and its answer."""

    def __init__(self, plane: DataPlane, slot: ConnectionSlot, forward: ForwardDecision) -> None:
        self.slot: ConnectionSlot | None = slot
        self.deadline = float("inf")
        self._plane = plane
        self._pool = slot.pool
        self._forward = forward
        self._app: UpstreamConnection | None = None
        self._head: ResponseHead | None = None
        self._body: deque[bytes] = deque()
        self._ahead = 0
        self._is_whole = self._is_over = self._is_silent = self._is_reused = False
        self._news = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        slot.is_busy = slot.pool.is_used = True

    async def run(self, receive: Receive, send: Send) -> LocalResponse | None:
        """Forward the request and send the answer; return one of ours when nothing of it came."""
        upload: asyncio.Task[None] | None = None
        try:
            await self._connect(may_reuse=self._forward.method == b"GET" and self._forward.length == 0)
            upload = asyncio.create_task(self._upload(receive))
            await self._news.wait()
            if self._head is None and self._is_reused and not self._is_over:  # it had ended while it was idle
                self._news.clear()
                await self._connect(may_reuse=False)
                await self._news.wait()
            if self._head is None:
                return SILENT if self._is_silent else ENDED if self._is_over else BROKEN
            await self._download(self._head, send)
            return None
        except TimeoutError:
            return SILENT
        except OSError:
            return UNREACHABLE
        finally:
            if upload:
                upload.cancel()

    def leave(self) -> None:
        """Give up an app that has not answered to the end."""
        if self._app:
            self._app.abort()
            self._app = None

    async def _connect(self, *, may_reuse: bool) -> None:
        forward = self._forward
        has_body = forward.length != 0
        idle = self._pool.take_idle(asyncio.get_running_loop().time()) if may_reuse else None
        self._is_reused = idle is not None
        app = idle or await self._pool.connect()
        self._app = app
        is_head = forward.method == b"HEAD"
        app.send(self, forward.to_bytes(), is_head=is_head, switches=False, is_whole=not has_body)
        self.deadline = asyncio.get_running_loop().time() + self._plane.limits.response_seconds

    async def _upload(self, receive: Receive) -> None:
        """Send the request's body on, then wait for the client to leave."""
        is_chunked = self._forward.length is None
        more = self._forward.length != 0
        while message := await receive():
            if message["type"] == "http.disconnect":
                self.cut()
                return
            body, more_follows = message.get("body", b""), message.get("more_body", False)
            if not (more and self._app):
                continue
            more = more_follows
            await self._may_write.wait()
            if self._app:
                chunk = b"%x\r\n%b\r\n" % (len(body), body) if is_chunked and body else body
                self._app.write(chunk + (b"0\r\n\r\n" if is_chunked and not more else b""), is_whole=not more)

    async def _download(self, head: ResponseHead, send: Send) -> None:
        """Send the answer as it comes; returning early tells the server that it is not whole."""
        headers = self._plane.authorizer.response_headers(self._forward.principal, head.headers)
        lower = [(name.lower(), value) for name, value in headers]
        await send({"type": "http.response.start", "status": head.status, "headers": lower})
        while not (self._is_over and not self._is_whole):
            if self._body:
                data = self._body.popleft()
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self._took(len(data))
            elif self._is_whole:
                await send({"type": "http.response.body", "body": b""})
                return
            else:
                self._news.clear()
                await self._news.wait()

    def _took(self, count: int) -> None:
        was_full = self._ahead > AHEAD_BYTES
        self._ahead -= count
        if was_full and self._ahead <= AHEAD_BYTES and self._app:
            self._app.resume_reading()

    # --- the app's answer

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Keep the head."""
        self._head = head
        self.deadline = float("inf")
        if first:
            self.response_body(first)
        self._news.set()

    def response_body(self, data: bytes) -> None:
        """Keep it until the server takes it; let the app wait when there is much."""
        self._body.append(data)
        self._ahead += len(data)
        if self._ahead > AHEAD_BYTES and self._app:
            self._app.pause_reading()
        self._news.set()

    def response_ended(self) -> None:
        """Note that all has come."""
        self._app = None
        self._is_whole = True
        self._news.set()

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Never called: a plain request switches to nothing."""
        raise AssertionError("a plain request switches to nothing")

    def upstream_lost(self, *, is_broken: bool) -> None:
        """Note that nothing more comes."""
        self._app = None
        self._is_over = self._head is not None
        self._news.set()

    def upstream_paused(self) -> None:
        """Read no more from the client."""
        self._may_write.clear()

    def upstream_resumed(self) -> None:
        """Read on."""
        self._may_write.set()

    # --- the plane

    def expire(self) -> None:
        """Give up an app that does not begin to answer."""
        self._is_silent = True
        self.cut()

    def cut(self) -> None:
        """End at once."""
        self.leave()
        self._is_over = True
        self._is_whole = False
        self._may_write.set()
        self._news.set()

    def shut_down(self) -> None:
        """Nothing to do: the server waits for answers under way."""
