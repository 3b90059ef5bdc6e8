"""Standard input and output of a container, over the engine's local socket: `POST /containers/{id}/attach`."""

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

API: Final = "v1.41"
CONNECT_SECONDS: Final = 60.0
FRAME_HEAD: Final = 8  # bytes: 1 or 2 for the stream, three zeros, and the length of what follows, big-endian
STDOUT: Final = 1
UPGRADED: Final = "101"
HEAD_LIMIT: Final = 16 * 1024  # bytes
STDERR_LINES: Final = 5


class Attachment:
    """The streams of a container that is made with an open input and no terminal; attach before it is started.

    When this is closed, or its process ends in whatever way, the container's input ends.
    """

    def __init__(self, engine_socket: Path, container_id: str) -> None:
        """Raises OSError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._stream = self._socket.makefile("rb")
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        try:
            self._socket.settimeout(CONNECT_SECONDS)
            self._socket.connect(str(engine_socket))
            self._socket.sendall(
                f"POST /{API}/containers/{container_id}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
                "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
            )
            self._expect_upgrade()
            self._socket.settimeout(None)
        except OSError:
            self._stream.close()
            self._socket.close()
            raise

    def write(self, data: bytes) -> None:
        """Write to the container's input. Raises OSError."""
        self._socket.sendall(data)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the container's output until it ends. Raises OSError."""
        rest = b""
        with self._stream as stream:
            while head := stream.read(FRAME_HEAD):
                content = stream.read(int.from_bytes(head[4:], "big"))
                if head[0] != STDOUT:
                    self._stderr.extend(content.decode(errors="replace").splitlines())
                    continue
                *whole, rest = (rest + content).split(b"\n")
                yield from (line.decode() for line in whole)

    def stderr_tail(self) -> str:
        """Return the last of what the container wrote to its standard error, in one line."""
        return " ".join(" ".join(self._stderr).split())

    def close(self) -> None:
        """Let go of the container; whoever reads its lines sees them end."""
        with suppress(OSError):  # it was never connected, or is not any more
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _expect_upgrade(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._stream.readline(HEAD_LIMIT)
            head += line
            if not line or len(head) > HEAD_LIMIT:
                raise OSError("the engine closed the connection")
        status = head.split(maxsplit=2)[1].decode(errors="replace")
        if status != UPGRADED:
            raise OSError(f"the engine answered {status}")
