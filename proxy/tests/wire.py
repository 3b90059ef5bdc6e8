"""HTTP and websockets written byte by byte, so that tests can send what no library would."""

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from proxy.tests.site import HOST
from tests.wait import SECONDS

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA


@dataclass
class Reply:
    """A response as received."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        """Return the values of a header, in order."""
        return [value for key, value in self.headers if key == name.lower()]


class Client:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Reply:
        """Return the next head."""
        async with asyncio.timeout(SECONDS):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:] if line]
        return Reply(int(lines[0].split(" ")[1]), [(name.lower(), value) for name, value in pairs])

    async def body(self, reply: Reply) -> bytes:
        """Return the body of a response. Raises IncompleteReadError if it is truncated."""
        async with asyncio.timeout(SECONDS):
            if reply.all("transfer-encoding"):
                return b"".join([chunk async for chunk in self.chunks()])
            length = reply.all("content-length")
            return await self.reader.readexactly(int(length[0])) if length else await self.reader.read(-1)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks of a body as they come."""
        while size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        while await self.reader.readuntil(b"\r\n") != b"\r\n":
            pass  # a trailer

    async def ask(self, request: bytes, *, has_body: bool = True) -> Reply:
        """Send a request and return the complete response."""
        await self.send(request)
        reply = await self.head()
        reply.body = await self.body(reply) if has_body else b""
        return reply

    async def ended(self) -> bytes:
        """Return what else comes until the other side ends the connection."""
        try:
            async with asyncio.timeout(SECONDS):
                return await self.reader.read(-1)
        except ConnectionError:
            return b""

    async def until_closed(self) -> None:
        """Return once the other side has closed the connection, or sent a close frame."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (await self.frame())[0] & 0x0F != CLOSE:
                pass

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame: its first byte and its content."""
        async with asyncio.timeout(SECONDS):
            first, second = await self.reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            return first, await self.reader.readexactly(size)

    def reset(self) -> None:
        """Close at once, without a FIN."""
        self.writer.transport.abort()


@asynccontextmanager
async def connected(port: int, address: str = "127.0.0.1") -> AsyncIterator[Client]:
    """Yield a connection to a port of this machine."""
    reader, writer = await asyncio.open_connection(address, port, limit=2**22)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def request(
    method: str = "GET", target: str = "/echo", body: bytes = b"", host: str = HOST, /, **headers: str
) -> bytes:
    """Return a request; underscores in the names of headers stand for dashes."""
    if body:
        headers["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def handshake(target: str = "/ws", host: str = HOST, /, **headers: str) -> bytes:
    """Return a websocket's handshake."""
    switch = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Origin": f"http://{host}",
        "Sec_WebSocket_Version": "13",
    }
    key = {"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    return request("GET", target, b"", host, **(switch | key | headers))


def masked(opcode: int, content: bytes = b"", *, is_last: bool = True) -> bytes:
    """Return a frame as browsers send it."""
    size = len(content)
    if size < 126:
        head = struct.pack("!BB", opcode | (0x80 if is_last else 0), 0x80 | size)
    elif size < 2**16:
        head = struct.pack("!BBH", opcode | (0x80 if is_last else 0), 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", opcode | (0x80 if is_last else 0), 0x80 | 127, size)
    mask = os.urandom(4)
    pattern = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(content, "big") ^ pattern).to_bytes(size, "big")
