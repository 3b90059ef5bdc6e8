"""A relay before a server, for tests of what a network does that is neither there nor gone."""

import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BLOCK: Final = 64 * 1024
SO_ATTACH_FILTER: Final = 26  # socket(7); Python names neither
SO_DETACH_FILTER: Final = 27
DROP_ALL: Final = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0 bytes of each packet


class Relay:
    """Forwards TCP connections to a server at a port of 127.0.0.1, or at a socket's path.

    While frozen, it keeps what comes until it is thawed, as a server that stands still; while it drops, no packet of
    its connections nor of new ones is acknowledged, as behind a network that is gone.
    """

    def __init__(self, target: int | Path) -> None:
        self._target = target
        self._flows = threading.Event()
        self._flows.set()
        self._drops = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it answers, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def freeze(self) -> None:
        """Forward nothing from now on."""
        self._flows.clear()

    def thaw(self) -> None:
        """Forward all that came meanwhile, and what comes."""
        self._flows.set()

    def drop(self) -> None:
        """Have the kernel drop what arrives from now on, on either side, before it is acknowledged."""
        with self._lock:
            self._drops = True
            for end in (self._listener, *self._sockets):
                _drop_packets(end)

    def restore(self) -> None:
        """Let packets through again; what was sent meanwhile is sent again, as TCP does."""
        with self._lock:
            self._drops = False
            for end in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)

    def cut(self) -> None:
        """Break all connections that there are; new ones are forwarded."""
        with self._lock:
            broken, self._sockets = self._sockets, []
        for end in broken:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept no more connections; those that exist end with their ends."""
        self.thaw()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = self._connected()
                except OSError:  # the server is not there at this moment
                    near.close()
                    continue
                with self._lock:
                    self._sockets += [near, far]
                    if self._drops:
                        _drop_packets(near)
                        _drop_packets(far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _connected(self) -> socket.socket:
        if isinstance(self._target, int):
            return socket.create_connection(("127.0.0.1", self._target))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._target))
        return connection

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BLOCK):
                self._flows.wait()
                sink.sendall(data)
        for end in (source, sink):  # the other pump's `recv` ends, too
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()


def _drop_packets(end: socket.socket) -> None:
    """Attach a socket filter that accepts nothing."""
    with contextlib.suppress(OSError):  # closed meanwhile, or a local socket, which has no packets
        program = struct.pack("HL", 1, ctypes.addressof(DROP_ALL))
        end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


@contextlib.contextmanager
def relaying(target: int | Path) -> Iterator[Relay]:
    """Relay to a port of 127.0.0.1, or to the socket at a path, until the block ends."""
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
