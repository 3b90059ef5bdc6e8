"""Commands that a test runs in a container, with all their output."""

from contextlib import closing
from typing import Any, Final

from docker.api import APIClient

from engine.frames import FRAME_HEAD

SECONDS: Final = 300.0  # that a command may be silent
END: Final = b"end of the output\n"


def output_of(client: APIClient, container: str, command: str, user: str = "") -> tuple[int, str]:
    """Run a shell command in the container; return its exit code and its output, errors among it.

    The shell goes on until the output has arrived: of a process that ends at once the engine may lose the last of it.
    """
    script = f"(exec 2>&1 </dev/null\n{command}\n)\ncode=$?; echo {END.decode().strip()}; read -r _; exit $code"
    exec_id = client.exec_create(container, ["sh", "-c", script], user=user, stdin=True)["Id"]
    output = b""
    connection: Any = client.exec_start(exec_id, socket=True)
    with closing(connection), closing(connection._response):
        connection._sock.settimeout(SECONDS)
        reader = connection._response.raw._fp.fp  # what came with the head of the response is in its buffer alone
        while END not in output and (head := reader.read(FRAME_HEAD)):
            output += reader.read(int.from_bytes(head[4:]))
        if END in output:
            connection._sock.sendall(b"\n")
            reader.read()  # until the shell has ended
    return int(client.exec_inspect(exec_id)["ExitCode"]), output.partition(END)[0].decode()
