"""Websocket load in a process of its own: `python -m bench.proxy_load PORT CONNECTIONS SECONDS HOST PATH COOKIE`.

Each connection sends a message of 64 bytes and waits for it to come back. Prints round trips a second.
"""

import asyncio
import sys
from typing import Final, cast

import uvloop

from bench.proxy_servers import FRAME, HOST
from bench.sizes import size

MESSAGE: Final = bytes((0x82, 0x80 | FRAME, 0, 0, 0, 0)) + b"m" * FRAME
ECHOED: Final = FRAME + 2
SETTLE_SECONDS: Final = size(0.3, 0.1)


class Talker(asyncio.Protocol):
    """One connection that never lets the other side rest."""

    def __init__(self, handshake: bytes) -> None:
        self._handshake = handshake
        self._received = 0
        self._head = b""
        self.round_trips = 0
        self.opened = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a websocket."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._handshake)

    def begin(self) -> None:
        """Send the first message."""
        self._transport.write(MESSAGE)

    def data_received(self, data: bytes) -> None:
        """Count what came back and send the next."""
        if not self.opened.done():
            self._head += data
            if b"\r\n\r\n" in self._head:
                if not self._head.startswith(b"HTTP/1.1 101"):
                    raise SystemExit(f"no websocket: {self._head[:200]!r}")
                self.opened.set_result(None)
            return
        self._received += len(data)
        if self._received >= ECHOED:
            self._received -= ECHOED
            self.round_trips += 1
            self._transport.write(MESSAGE)


async def talk(port: int, connections: int, seconds: float, head: bytes) -> float:
    """Return round trips a second over all connections."""
    loop = asyncio.get_running_loop()
    talkers: list[Talker] = []
    for _ in range(connections):
        _, talker = await loop.create_connection(lambda: Talker(head), HOST, port)
        talkers.append(talker)
    await asyncio.gather(*(talker.opened for talker in talkers))
    for talker in talkers:
        talker.begin()
    await asyncio.sleep(SETTLE_SECONDS)
    before, started = sum(talker.round_trips for talker in talkers), loop.time()
    await asyncio.sleep(seconds)
    return (sum(talker.round_trips for talker in talkers) - before) / (loop.time() - started)


def main() -> None:
    """Print what `talk` returns."""
    port, connections, seconds, host, path, cookie = sys.argv[1:]
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Origin: http://{host}",
        f"Cookie: {cookie}",
    ]
    head = "\r\n".join([*lines, "", ""]).encode()
    print(uvloop.run(talk(int(port), int(connections), float(seconds), head)))


if __name__ == "__main__":
    main()
