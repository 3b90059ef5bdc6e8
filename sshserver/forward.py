"""Forwarding of a port of the user's machine to one of the session's own: `ssh -L`, `-D`, and what editors do by them.

The connection is made inside the container, by a process of its user's, to the container's loopback: whoever may enter
the session could do the same in its shell. Nothing else is ever connected to, by anybody.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import asyncssh

from engine.command import Command
from engine.engine import ExecError
from sshserver.access import Guest
from sshserver.carrier import Carrier

OWN_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# Says its process id once it is connected, as `Command` expects; then carries bytes until the app has ended its side.
RELAY: Final = """
import os, socket, sys, threading
try:
    app = socket.create_connection(("localhost", int(sys.argv[1])), 5)
except OSError as error:
    sys.exit(print(error.strerror or error))
app.settimeout(None)
os.write(1, b"%d\\n" % os.getpid())
def carry():
    while data := os.read(0, 65536):
        app.sendall(data)
    app.shutdown(socket.SHUT_WR)
threading.Thread(target=carry, daemon=True).start()
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


class Forward(Carrier, asyncssh.SSHTCPSession[bytes]):
    """One forwarded connection, to a port at which something in the container listens."""

    def __init__(
        self, process: Command, guest: Guest, used: Callable[[], None], ended: Callable[[Carrier], None]
    ) -> None:
        super().__init__(guest, used, ended)
        self._process = process

    @classmethod
    async def connect(
        cls, port: int, guest: Guest, used: Callable[[], None], ended: Callable[[Carrier], None]
    ) -> "Forward":
        """Connect to the port in the container. Raises ChannelOpenError where nothing takes the connection."""
        command = ["sh", "-c", START, "sh", str(port), RELAY]
        try:
            process = await Command.start(guest.engine, guest.container_id, command, {}, "connection")
        except ExecError as error:
            words = f"Port {port} of the session: {error}"
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, words) from error
        return cls(process, guest, used, ended)

    async def hang_up(self) -> None:
        """End the connection to the app."""
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
