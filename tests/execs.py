"""Commands that a test runs in a container, with all their output."""

from contextlib import closing
from typing import Any, Final

from docker.api import APIClient
from docker.utils.socket import frames_iter

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
        for _, data in frames_iter(connection, tty=False):
            output += data
            if END in output:
                connection._sock.sendall(b"\n")
                connection.read()  # until the shell has ended
                break
    return int(client.exec_inspect(exec_id)["ExitCode"]), output.partition(END)[0].decode()
