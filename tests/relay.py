"""A TCP relay before a server, for tests of what a network does that is neither there nor gone."""

import contextlib
import socket
import threading
from collections.abc import Iterator

BLOCK = 64 * 1024


class Relay:
    """Forwards connections to 127.0.0.1:`port`, and while frozen keeps what comes until it is thawed."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._flows = threading.Event()
        self._flows.set()
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

    def close(self) -> None:
        """Accept no more connections; those that exist end with their ends."""
        self.thaw()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BLOCK):
                self._flows.wait()
                sink.sendall(data)
        for end in (source, sink):  # the other pump's `recv` ends, too
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()


@contextlib.contextmanager
def relaying(port: int) -> Iterator[Relay]:
    """Relay to 127.0.0.1:`port` until the block ends."""
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.close()
