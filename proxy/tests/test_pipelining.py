"""Requests that come before the response to the one ahead of them, and clients that read no response."""

import asyncio
import hashlib
from typing import Any

import pytest

from proxy.data_plane import DataPlane
from proxy.limits import ProxyLimits
from proxy.listener.client_connection import ClientConnection
from proxy.listener.request_parser import MAX_PIPELINED
from proxy.tests.black_box import log_in, seen
from proxy.tests.servers import RunningProxy
from proxy.tests.site import FakeControlPlane, authorizer
from proxy.tests.wire import connected, request
from proxy.upstream.pool import WRITE_BUFFER_BYTES

READS = 400


class SlowReader(asyncio.Transport):
    """The transport of a client that reads nothing until `read` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = b""
        self.is_reading_requests = True
        self.is_ended = False

    def connect(self, protocol: asyncio.Protocol) -> None:
        """Begin with this protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    def read(self) -> bytes:
        """Return what was written, as the client that reads now."""
        unread, self.unread = self.unread, b""
        if len(unread) > self._high:
            self._protocol.resume_writing()
        return unread

    def write(self, data: Any) -> None:
        """Keep the data; ask for no more than the high-water mark."""
        is_full = len(self.unread) > self._high
        self.unread += data
        if not is_full and len(self.unread) > self._high:
            self._protocol.pause_writing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the client's address."""
        return ("192.0.2.1", 50_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep the high-water mark."""
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        """Return how much the client has not read."""
        return len(self.unread)

    def pause_reading(self) -> None:
        """Read no requests."""
        self.is_reading_requests = False

    def resume_reading(self) -> None:
        """Read requests again."""
        self.is_reading_requests = True

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.is_ended

    def can_write_eof(self) -> bool:
        """Close in one stage."""
        return False

    def close(self) -> None:
        """End."""
        self.is_ended = True

    abort = close


def begun(limits: ProxyLimits | None = None) -> tuple[ClientConnection, SlowReader]:
    """Return a connection to the private app `echo--s1`, and its client."""
    connection = ClientConnection(DataPlane(authorizer(), FakeControlPlane(), limits))
    client = SlowReader()
    client.connect(connection)
    return connection, client


async def settled(requests: int) -> None:
    """Let everything run that these requests can have begun."""
    for _ in range(3 * requests):
        await asyncio.sleep(0)


@pytest.mark.loopback
async def test_a_pipelined_upload_is_not_cut_short(proxy: RunningProxy) -> None:
    upload = request("POST", "/echo", Transfer_Encoding="chunked", **log_in())
    async with connected(proxy.port) as client:
        await client.send(request(**log_in()) + upload + b"5\r\nab")
        first = await client.head()
        first.body = await client.body(first)
        await client.send(b"cde\r\n0\r\n\r\n")
        second = await client.head()
        second.body = await client.body(second)
    assert (seen(first)["size"], seen(second)["size"]) == (0, 5)
    assert seen(second)["digest"] == hashlib.sha256(b"abcde").hexdigest()


async def test_responses_that_nobody_reads_do_not_pile_up() -> None:
    connection, client = begun()
    refused = request("GET", "/") * 10
    reads = 0
    while client.is_reading_requests and reads < READS:
        connection.data_received(refused)
        await settled(10)
        reads += 1
    assert WRITE_BUFFER_BYTES < len(client.unread) < WRITE_BUFFER_BYTES + 4096
    responses = client.read()
    await settled(100)
    responses += client.read()
    assert responses.count(b"HTTP/1.1 401 ") == 10 * reads


async def test_a_read_of_too_many_requests_is_refused() -> None:
    connection, client = begun()
    connection.data_received(request("GET", "/") * MAX_PIPELINED)
    served = b""
    for _ in range(3):  # of WRITE_BUFFER_BYTES
        await settled(MAX_PIPELINED)
        served += client.read()
    assert (served.count(b"HTTP/1.1 401 "), client.is_ended) == (MAX_PIPELINED, False)
    connection.data_received(request("GET", "/") * (MAX_PIPELINED + 1))
    await settled(1)
    assert (client.read().partition(b"\r\n")[0], client.is_ended) == (b"HTTP/1.1 429 Too Many Requests", True)


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    connection, client = begun()
    while client.is_reading_requests:
        connection.data_received(request("GET", "/") * 10)
        await settled(10)
    assert connection.deadline <= connection.loop.time() + ProxyLimits().idle_seconds
    connection.expire()
    assert client.is_ended
