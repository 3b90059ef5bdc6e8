"""Asks an app in a container whether it answers. Pure but for the socket; the other end may be hostile."""

import re
import socket
import time
from enum import Enum
from typing import Final

SECONDS: Final = 2.0  # for the whole exchange
ENOUGH_BYTES: Final = 16  # to read a status line's number
_STATUS: Final = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})")


class Answer(Enum):
    """What came of asking."""

    OK = "answers"  # HTTP, and no error of its own
    ERROR = "answers with an error"  # HTTP 5xx
    STRANGE = "does not speak HTTP"
    SILENT = "does not answer"  # it took the connection, and no more; or nothing is there at all
    NOBODY = "is not listening"


def probe(address: str, port: int, path: str = "/") -> Answer:
    """GET the path and judge the first line of the answer."""
    deadline = time.monotonic() + SECONDS
    request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nUser-Agent: gpuplatform\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection((address, port), timeout=SECONDS) as connection:
            connection.sendall(request.encode())
            return _judged(_first_bytes(connection, deadline))
    except ConnectionRefusedError:
        return Answer.NOBODY
    except OSError:
        return Answer.SILENT


def _first_bytes(connection: socket.socket, deadline: float) -> bytes:
    """Return as many as are needed, or what came before the end. Raises TimeoutError at the deadline."""
    data = b""
    while len(data) < ENOUGH_BYTES:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not (chunk := connection.recv(ENOUGH_BYTES - len(data))):
            break
        data += chunk
    return data


def _judged(data: bytes) -> Answer:
    match = _STATUS.match(data)
    if not match:
        return Answer.STRANGE if data else Answer.SILENT
    return Answer.ERROR if match[1] >= b"500" else Answer.OK
