"""A session channel (RFC 4254, section 6): a shell, a command or SFTP in the container, from request to exit status."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import asyncssh

from engine.command import Command
from engine.engine import ExecError
from engine.shell import PLAIN_START, Shell
from sshserver.access import SshPrincipal
from sshserver.exec_channel import ExecChannel, Process

logger = logging.getLogger(__name__)

SFTP: Final = "sftp"
FAILED: Final = 255  # exit status where the process could not be started, as of ssh itself
RESIZE_TIMEOUT_SECONDS: Final = 3.0
TERMINAL_NAME: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}")
# Where the packages of Debian, Red Hat, SUSE and Alpine put the program.
SFTP_START: Final = """
echo $$
for folder in /usr/lib/openssh /usr/libexec/openssh /usr/libexec/ssh /usr/lib/ssh /usr/libexec; do
    if [ -x "$folder/sftp-server" ]; then exec "$folder/sftp-server"; fi
done
echo "This session's image has no sftp-server, so sftp and scp do not work in it; \
images get it with Debian's package openssh-sftp-server. 'scp -O' works where the image has scp." >&2
exit 127
"""


class SessionChannel(ExecChannel, asyncssh.SSHServerSession[bytes]):
    """A shell, a command or SFTP."""

    _channel: asyncssh.SSHServerChannel[bytes] | None

    def __init__(self, principal: SshPrincipal, used: Callable[[], None], ended: Callable[[ExecChannel], None]) -> None:
        super().__init__(principal, used, ended)
        self._arguments: list[str] = []
        self._has_terminal = False
        self._terminal_name = ""
        self._size = (80, 24)  # columns, rows
        self._resized = asyncio.Event()

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        """Take the terminal; its modes are left to the container's own."""
        self._has_terminal = True
        self._terminal_name = term_type if TERMINAL_NAME.fullmatch(term_type) else "xterm-256color"
        self._note_size(term_size[0], term_size[1])
        return True

    def shell_requested(self) -> bool:
        """Accept a request for a shell."""
        self._arguments = ["/bin/sh", "-c", PLAIN_START, "sh"]
        return True

    def exec_requested(self, command: str) -> bool:
        """Accept a command, unless it contains a NUL, which an argument list cannot hold."""
        self._arguments = ["/bin/sh", "-c", PLAIN_START, "sh", command]
        return "\0" not in command

    def subsystem_requested(self, subsystem: str) -> bool:
        """Accept SFTP, and no other subsystem."""
        self._arguments = ["/bin/sh", "-c", SFTP_START, "sh"]
        return subsystem == SFTP

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """Apply the new size of the window."""
        self._note_size(width, height)

    def show(self, message: str) -> None:
        """Write the message to the terminal or to standard error, if the channel is still open."""
        with suppress(OSError):
            self._write(f"\r\n{message}\r\n".encode(), is_error=not self._has_terminal)

    def _note_size(self, columns: int, rows: int) -> None:
        if 0 < columns < 10_000 and 0 < rows < 10_000:
            self._size = columns, rows
            self._resized.set()

    async def _run(self) -> None:
        """Run the process from its start to the exit status; cancellation and errors end the process."""
        try:
            code = await self._serve()
        except ExecError as error:
            logger.warning("session %s: SSH: %s", self._principal.session_id, error)
            self.show(str(error))
            code = FAILED
        except OSError:
            logger.info("session %s: an SSH client left", self._principal.session_id)
            code = FAILED
        except Exception:
            logger.exception("session %s: an SSH channel broke", self._principal.session_id)
            code = FAILED
        finally:
            self._ended(self)
        if self._channel:
            self._channel.exit(code)

    async def _serve(self) -> int:
        process = await self._started()
        pumps: list[asyncio.Task[None]] = []
        try:
            if isinstance(process, Shell):
                await self._apply_size(process)  # before anything that was typed ahead
                pumps.append(asyncio.create_task(self._pump_size(process)))
            pumps.append(asyncio.create_task(self._pump_input(process)))
            await self._pump_output(process)
            code = await process.ended()
        except BaseException:
            await process.hang_up()
            raise
        finally:
            for pump in pumps:
                pump.cancel()
        process.close()
        return code

    async def _started(self) -> Process:
        """Return the started process; if cancelled meanwhile, end the process first. Raises ExecError."""
        start = asyncio.create_task(self._start())
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            with suppress(ExecError):
                await (await start).hang_up()
            raise

    async def _start(self) -> Process:
        principal = self._principal
        if self._has_terminal:
            terminal = {"TERM": self._terminal_name}
            return await Shell.start(principal.engine, principal.container_id, self._arguments, terminal)
        return await Command.start(principal.engine, principal.container_id, self._arguments, {})

    async def _pump_size(self, shell: Shell) -> None:
        while True:
            await self._resized.wait()
            await self._apply_size(shell)

    async def _apply_size(self, shell: Shell) -> None:
        """Apply the newest size; a failure is logged, and corrected by the next resize."""
        self._resized.clear()
        try:
            async with asyncio.timeout(RESIZE_TIMEOUT_SECONDS):
                await shell.resize(*self._size)
        except (ExecError, TimeoutError) as error:
            logger.info("session %s: an SSH terminal kept its size: %s", self._principal.session_id, error)
