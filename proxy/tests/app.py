"""An app for the tests of the data plane: it echoes what it received, and misbehaves on request."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from proxy.tests.wire import CLOSE, PING, PONG, Client
from tests.wait import SECONDS

BIG: Final = 200 * 2**20
MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class App:
    """A server at a port of its own; the first segment of a path names its behaviour."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[str] = []  # request lines, as they came
        self.connections = 0  # open now
        self.accepted = 0  # ever opened
        self.uploaded = 0  # bytes of bodies that have come
        self.written = 0  # bytes of the big response that were sent
        self.events_taken = 0  # of the event stream, as the test says; the next one is sent then
        self.server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tired: list[asyncio.StreamWriter] = []  # connections that close at their second request
        self.changed = asyncio.Condition()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once a condition on the app's counters holds."""
        async with asyncio.timeout(SECONDS), self.changed:
            await self.changed.wait_for(holds)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self.connections += 1
        self.accepted += 1
        self._open.add(writer)
        await self._tell()
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._serve_one(reader, writer):
                pass
        writer.close()
        self._open.discard(writer)
        self.connections -= 1
        await self._tell()

    def kill(self) -> None:
        """End as a process that is killed: nothing listens any more, and all connections are reset."""
        if self.server:
            self.server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.requests.append(lines[0])
        if writer in self._tired:
            return False
        headers = [line.split(": ", 1) for line in lines[1:] if line]
        body = await self._body(Client(reader, writer), {name.lower(): value for name, value in headers})
        name = lines[0].split(" ")[1].split("?")[0].split("/")[1]
        handlers: dict[str, Callable[[Visit], Awaitable[bool]]] = {
            "think": self._think,
            "big": self._big,
            "ws": self._websocket,
        }
        visit = Visit(lines[0], headers, body, Client(reader, writer))
        handler = handlers.get(name)
        if handler:
            return await handler(visit)
        if name == "once":
            self._tired.append(writer)
        response = RESPONSES.get(name)
        if response is not None:
            writer.write(response)
            await writer.drain()
            return name not in CLOSING
        if name == "events":
            return await self._events(writer)
        return await _echo(visit)

    async def _body(self, client: Client, headers: dict[str, str]) -> bytes:
        body = b""
        if "chunked" in headers.get("transfer-encoding", ""):
            async for chunk in client.chunks():
                body += chunk
                self.uploaded += len(chunk)
                await self._tell()
        elif "content-length" in headers:
            body = await client.reader.readexactly(int(headers["content-length"]))
            self.uploaded += len(body)
        return body

    async def _think(self, visit: "Visit") -> bool:
        await self._tell()
        await visit.client.reader.read(1)
        return False

    async def take_event(self) -> None:
        """Let the app send the next event."""
        self.events_taken += 1
        await self._tell()

    async def _events(self, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(4):
            event = b"data: %d\n\n" % number
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await self.until(lambda before=number: self.events_taken > before)  # type: ignore[misc]
        writer.write(b"0\r\n\r\n")
        return True

    async def _big(self, visit: "Visit") -> bool:
        writer = visit.client.writer
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
        piece = bytes(2**18)
        for _ in range(BIG // len(piece)):
            writer.write(piece)
            await writer.drain()
            self.written += len(piece)
        return True

    async def _websocket(self, visit: "Visit") -> bool:
        target = visit.line.split(" ")[1]
        if target.endswith("refused"):
            visit.client.writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nX-Why: app\r\n\r\nno")
            return True
        key = next(value for name, value in visit.headers if name.lower() == "sec-websocket-key").encode()
        accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
        offered = [value for name, value in visit.headers if name.lower() == "sec-websocket-protocol"]
        chosen = b"Sec-WebSocket-Protocol: %b\r\n" % offered[0].split(",")[-1].strip().encode() if offered else b""
        visit.client.writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (accept, chosen)
        )
        if target.endswith("headers"):
            visit.client.writer.write(_plain(0x81, json.dumps(visit.headers).encode()))
        if target.endswith("leave"):
            visit.client.writer.write(_plain(0x80 | CLOSE, (4001).to_bytes(2, "big") + b"bye"))
        await _echo_frames(visit.client)
        return False


class Visit:
    """A request that reached the app."""

    def __init__(self, line: str, headers: list[list[str]], body: bytes, client: Client) -> None:
        self.line = line
        self.headers = headers
        self.body = body
        self.client = client


@asynccontextmanager
async def running_app() -> AsyncIterator[App]:
    """Yield an app that listens on a free port of this machine."""
    app = App()
    server = await asyncio.start_server(app.serve, "127.0.0.1", 0, limit=2**22)
    app.server = server
    app.port = server.sockets[0].getsockname()[1]
    try:
        yield app
    finally:
        server.close()


def most_under_way(connections: int) -> int:
    """Return how many bytes of a response nobody reads may be on so many connections: the kernel's, and few of ours."""
    settings = (Path("/proc/sys/net/ipv4", name).read_text() for name in ("tcp_rmem", "tcp_wmem"))
    return connections * (sum(int(each.split()[2]) for each in settings) + 2**20)


COMPLETION: Final = (  # of a model, in chunks that end anywhere
    *(b'data: {"choices": [{"delta": {"content": "a"}}], "usage": null}\n\n', b'data: {"usage": {"prompt_tok'),
    b'ens": 7, "completion_tokens": 12}}\n\ndata: [DONE]\n\n',
)
RESPONSES: Final = {
    "v1": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*COMPLETION, b"")),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "304": b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n',
    "cookies": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a=1; Expires=Wed, 21 Oct 2099 07:28:00 GMT\r\n"
    b"Set-Cookie: b=2\r\nSet-Cookie: c=3\r\n\r\n",
    "cors": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept\r\n"
    b"Access-Control-Allow-Credentials: true\r\naccess-control-expose-headers: x-y\r\n\r\n",
    "dangerous": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Accel-Redirect: /etc/passwd\r\nAlt-Svc: clear\r\n"
    b'Clear-Site-Data: "cookies"\r\nSet-Cookie: gp_app=x\r\nSet-Cookie: a=1; Domain=apps.localhost\r\n\r\n',
    "kept": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: max-age=31536000, immutable\r\n"
    b"Expires: Wed, 21 Oct 2099 07:28:00 GMT\r\nNEL: {}\r\nReport-To: {}\r\n\r\nok",
    "ours": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: gp_session=x; Path=/\r\nSet-Cookie: GP_CSRF=x\r\n"
    b"Set-Cookie: __Host-gp_session=x; Secure; Path=/\r\nSet-Cookie: gp_app_10200=x\r\nSet-Cookie:  gp_share=x\r\n"
    b"Set-Cookie: =gp_session=x\r\nSet-Cookie: gp_session\r\nSet-Cookie: own=1; Domain=127.0.0.1; Path=/\r\n\r\n",
    "hop": b"HTTP/1.1 200 OK\r\nConnection: x-foo\r\nX-Foo: 1\r\nProxy-Authenticate: Basic\r\nX-Bar: 2\r\n"
    b"Content-Length: 0\r\n\r\n",
    "early": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Trailer: 1\r\n\r\n",
    "dies": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789",
    "dies-in-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "once": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "until-close": b"HTTP/1.1 200 OK\r\n\r\nall there is",
    "hangs-up": b"",
    "nonsense": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "two": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb",
    "two-chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nb",
    "unknown-coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "no-coding-after-all": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"
    b"1\r\na\r\n0\r\n\r\n",
    "two-codings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "much-announced": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "announced-too-often": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 101 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "announced-at-length": (b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 60_000 + b"\r\n\r\n") * 5
    + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "long-trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: "
    + b"x" * 2**20
    + b"\r\n\r\n",
    "many-trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    + b"X: x\r\n" * 200_000
    + b"\r\n",
    "long-chunk-extension": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x="
    + b"x" * 2**20
    + b"\r\nabc\r\n0\r\n\r\n",
    "names-its-length": b"HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 2\r\n\r\nok",
    "odd-reason": b"HTTP/1.1 200 O\x00\x0bK\r\nContent-Length: 2\r\n\r\nok",
    "wide": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Wide: " + b"w" * 12000 + b"\r\n\r\nok",
}
CLOSING: Final = frozenset(("dies", "dies-in-chunk", "until-close", "hangs-up", "nonsense"))


async def _echo(visit: Visit) -> bool:
    seen = {"line": visit.line, "headers": visit.headers, "size": len(visit.body)}
    body = json.dumps(seen | {"digest": hashlib.sha256(visit.body).hexdigest()}).encode()
    is_head = visit.line.startswith("HEAD")
    visit.client.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + (b"" if is_head else body))
    await visit.client.writer.drain()
    return True


async def _echo_frames(client: Client) -> None:
    """Send each frame back; a ping becomes a pong, and a close frame is answered and ends the connection."""
    while True:
        first, second = await client.reader.readexactly(2)
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(await client.reader.readexactly(2 if size == 126 else 8), "big")
        mask = await client.reader.readexactly(4)
        content = _unmask(await client.reader.readexactly(size), mask)
        if first & 0x0F == PING:
            first = 0x80 | PONG
        client.writer.write(_plain(first, content))
        await client.writer.drain()
        if first & 0x0F == CLOSE:
            return


def _plain(first: int, content: bytes) -> bytes:
    size = len(content)
    if size < 126:
        return bytes((first, size)) + content
    if size < 2**16:
        return bytes((first, 126)) + size.to_bytes(2, "big") + content
    return bytes((first, 127)) + size.to_bytes(8, "big") + content


def _unmask(content: bytes, mask: bytes) -> bytes:
    pattern = int.from_bytes((mask * (len(content) // 4 + 1))[: len(content)], "big")
    return (int.from_bytes(content, "big") ^ pattern).to_bytes(len(content), "big")
