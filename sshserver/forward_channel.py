"""A direct-tcpip channel (RFC 4254, section 7.2), to a port of the session itself: `ssh -L`, `-D`, editors.

A process of the session's user connects inside the container, to the container's loopback, as the user could do in the
shell. No other address is ever connected to.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import asyncssh

from engine.command import Command
from engine.engine import ExecError
from sshserver.access import SshPrincipal
from sshserver.exec_channel import ExecChannel

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# Writes its process id once it is connected, as `Command` expects; then copies bytes until the app closes its side.
RELAY: Final = """
import os, socket, sys, threading
try:
    app = socket.create_connection(("localhost", int(sys.argv[1])), 5)
except OSError as error:
    sys.exit(print(error.strerror or error))
app.settimeout(None)
os.write(1, b"%d\\n" % os.getpid())
def copy_input():
    while data := os.read(0, 65536):
        app.sendall(data)
    app.shutdown(socket.SHUT_WR)
threading.Thread(target=copy_input, daemon=True).start()
while data := app.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
"""
START: Final = """
for python in python3 python; do
    if command -v "$python" >/dev/null 2>&1; then exec "$python" -c "$2" "$1" 2>/dev/null; fi
done
echo "the image has no Python, which forwarding takes"
"""


class ForwardChannel(ExecChannel, asyncssh.SSHTCPSession[bytes]):
    """One forwarded connection, to a port on which a program in the container listens."""

    def __init__(
        self, process: Command, principal: SshPrincipal, used: Callable[[], None], ended: Callable[[ExecChannel], None]
    ) -> None:
        super().__init__(principal, used, ended)
        self._process = process

    @classmethod
    async def connect(
        cls, port: int, principal: SshPrincipal, used: Callable[[], None], ended: Callable[[ExecChannel], None]
    ) -> "ForwardChannel":
        """Connect to the port in the container. Raises ChannelOpenError where nothing accepts the connection."""
        command = ["/bin/sh", "-c", START, "sh", str(port), RELAY]
        try:
            process = await Command.start(principal.engine, principal.container_id, command, {}, "connection")
        except ExecError as error:
            reason = f"Port {port} of the session: {error}"
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, reason) from error
        return cls(process, principal, used, ended)

    async def hang_up(self) -> None:
        """Close the connection to the app."""
        await self._process.hang_up()

    async def _run(self) -> None:
        pump = asyncio.create_task(self._pump_input(self._process))
        try:
            with suppress(OSError):
                await self._pump_output(self._process)
        finally:
            pump.cancel()
            self._ended(self)
            await self.hang_up()
        if self._channel:
            self._channel.close()
