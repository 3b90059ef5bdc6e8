"""Two connections whose bytes pass without being looked at: a websocket after its handshake."""

import asyncio
import socket
from typing import Final

from proxy.data_plane import ConnectionSlot, DataPlane

BEAT_BYTES: Final = 131  # of the longest ping: two bytes of head, four of mask, 125 of content
PROBE_AFTER_SECONDS: Final = 60  # of silence, whether the other side is still there


class Tunnel:
    """A browser's connection and an app's, joined; each waits for the other to take what it sends."""

    def __init__(
        self, plane: DataPlane, slot: ConnectionSlot, client: asyncio.Transport, app: asyncio.Transport
    ) -> None:
        self.slot: ConnectionSlot | None = slot
        self.deadline = float("inf")
        self._plane = plane
        self._transports = (client, app)
        self._ends_open = 2
        for transport, other in ((client, app), (app, client)):
            transport.set_protocol(TunnelEnd(self, other, slot))
            _probe(transport)
        plane.connections.add(self)

    def lost(self, other: asyncio.Transport, error: Exception | None) -> None:
        """Note that one side has ended; the other may still take what is under way, for a while."""
        self._ends_open -= 1
        if self._ends_open == 0:
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
        """End the side that does not take the rest."""
        self.cut()

    def cut(self) -> None:
        """End both sides at once."""
        for transport in self._transports:
            transport.abort()

    def shut_down(self) -> None:
        """Go on: no moment is better than another. `DataPlane.stop` cuts."""


class TunnelEnd(asyncio.Protocol):
    """What comes from one side goes to the other."""

    __slots__ = ("_other", "_pool", "_tunnel")

    def __init__(self, tunnel: Tunnel, other: asyncio.Transport, slot: ConnectionSlot) -> None:
        self._tunnel = tunnel
        self._other = other
        self._pool = slot.pool

    def data_received(self, data: bytes) -> None:
        """Pass it on; a mere sign of life is no activity, or a forgotten tab would look alive for ever."""
        self._other.write(data)
        if not self._pool.is_used and not is_beat(data):
            self._pool.is_used = True

    def pause_writing(self) -> None:
        """This side lags behind: let the other wait."""
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """This side has caught up."""
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the other side end too."""
        self._tunnel.lost(self._other, exc)


def is_beat(data: bytes) -> bool:
    """Return whether the bytes are exactly one ping or pong of a websocket."""
    size = len(data)
    if not 2 <= size <= BEAT_BYTES or data[0] & 0x0F not in (0x9, 0xA):
        return False
    masked = 4 if data[1] & 0x80 else 0
    return size == 2 + masked + (data[1] & 0x7F)


def _probe(transport: asyncio.Transport) -> None:
    """Have the system find out when the machine at the other end is gone."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_SECONDS)
