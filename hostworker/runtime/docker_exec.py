"""Running a program in a container of the Docker Engine, bounded in time and output: the container may be hostile."""

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from docker.api import APIClient

from engine.frames import unframed
from hostworker.runtime.base import ExecResult, ExecutionError

SECONDS: Final = 20.0  # until the program must have ended
OUTPUT_LIMIT: Final = 64 * 1024  # bytes; what comes after is not read
READ_BYTES: Final = 16 * 1024
END_PAUSE_SECONDS: Final = 0.02


def execute(client: APIClient, container_id: str, command: Sequence[str], environment: Mapping[str, str]) -> ExecResult:
    """Run the program as the container's own user, in its own folder. Raises ExecutionError, and what the SDK does."""
    deadline = time.monotonic() + SECONDS
    exec_id = str(client.exec_create(container_id, list(command), environment=dict(environment))["Id"])
    stream: Any = client.exec_start(exec_id, socket=True)
    try:
        connection: socket.socket = getattr(stream, "_sock", stream)
        output = unframed(_read(connection, deadline))
    finally:
        stream._response.close()  # to which the socket belongs; the SDK keeps it there
    return ExecResult(exit_code=_exit_code(client, exec_id, deadline), output=output.decode(errors="replace"))


def _read(connection: socket.socket, deadline: float) -> bytes:
    """Return what comes until the program has closed its output, or as much as is wanted."""
    data = bytearray()
    while len(data) < OUTPUT_LIMIT:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ExecutionError("A program in the container did not end in time.")
        connection.settimeout(left)
        try:
            chunk = connection.recv(READ_BYTES)
        except TimeoutError:
            continue
        if not chunk:
            break
        data += chunk
    return bytes(data)


def _exit_code(client: APIClient, exec_id: str, deadline: float) -> int:
    """Return the exit code; the engine knows it a moment after the output has ended."""
    while time.monotonic() < deadline:
        state = client.exec_inspect(exec_id)
        if not state["Running"] and state["ExitCode"] is not None:
            return int(state["ExitCode"])
        time.sleep(END_PAUSE_SECONDS)
    raise ExecutionError("A program in the container did not end in time.")
