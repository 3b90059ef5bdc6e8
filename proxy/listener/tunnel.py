"""Two connections whose bytes are passed on without being parsed: a websocket after its handshake."""

import asyncio
import socket
from typing import Final

from proxy.data_plane import ConnectionSlot, DataPlane

MAX_PING_BYTES: Final = 131  # header 2, mask 4, payload 125 (RFC 6455, 5.5)
KEEPALIVE_SECONDS: Final = 60  # of silence, after which the system probes the other side


class Tunnel:
    """A client's connection and an upstream's, joined, with backpressure in both directions."""

    def __init__(
        self, plane: DataPlane, slot: ConnectionSlot, client: asyncio.Transport, upstream: asyncio.Transport
    ) -> None:
        self.slot: ConnectionSlot | None = slot
        self.deadline = float("inf")
        self.is_websocket = True
        self._plane = plane
        self._transports = (client, upstream)
        self._open_ends = 2
        for transport, other in ((client, upstream), (upstream, client)):
            transport.set_protocol(TunnelEnd(self, other, slot))
            _enable_keepalive(transport)
        plane.connections.add(self)

    def end_lost(self, other: asyncio.Transport, error: Exception | None) -> None:
        """Handle the loss of one end; the other is closed once it has read what was sent to it."""
        self._open_ends -= 1
        if self._open_ends == 0:
            self._plane.connections.discard(self)
            return
        if self.slot:
            self._plane.release_slot(self.slot)
            self.slot = None
        self.deadline = asyncio.get_running_loop().time() + self._plane.limits.linger_seconds
        if error is None:
            other.close()
        else:
            other.abort()

    def expire(self) -> None:
        """Close the end that does not read the rest."""
        self.abort()

    def abort(self) -> None:
        """Close both ends at once."""
        for transport in self._transports:
            transport.abort()

    def shut_down(self) -> None:
        """Do nothing: a websocket has no better moment to end. `DataPlane.stop` aborts it."""


class TunnelEnd(asyncio.Protocol):
    """Writes what one end sends to the other."""

    __slots__ = ("_other", "_pool", "_tunnel")

    def __init__(self, tunnel: Tunnel, other: asyncio.Transport, slot: ConnectionSlot) -> None:
        self._tunnel = tunnel
        self._other = other
        assert slot.pool
        self._pool = slot.pool

    def data_received(self, data: bytes) -> None:
        """Pass data on; pings and pongs are no use of the app, or a forgotten tab would keep its session alive."""
        self._other.write(data)
        if not self._pool.is_used and not is_ping(data):
            self._pool.is_used = True

    def pause_writing(self) -> None:
        """Pause the other end, which sends faster than this one reads."""
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """Resume the other end."""
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end."""
        self._tunnel.end_lost(self._other, exc)


def is_ping(data: bytes) -> bool:
    """Return whether the bytes are exactly one ping or pong frame of a websocket."""
    size = len(data)
    if not 2 <= size <= MAX_PING_BYTES or data[0] & 0x0F not in (0x9, 0xA):
        return False
    mask_size = 4 if data[1] & 0x80 else 0
    return size == 2 + mask_size + (data[1] & 0x7F)


def _enable_keepalive(transport: asyncio.Transport) -> None:
    """Have the system detect that the machine at the other end is gone."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
