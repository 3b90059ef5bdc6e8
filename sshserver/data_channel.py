"""A session channel of a connection to the user's data folders: SFTP and nothing else."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

import asyncssh
from asyncssh.sftp import SFTPServerHandler
from asyncssh.stream import SSHServerStreamSession

from sshserver.access import DataPrincipal
from sshserver.data_folders import DataFolders
from sshserver.sftp_server import SFTP_VERSION, DataSftpServer

logger = logging.getLogger(__name__)

SFTP: Final = "sftp"
REFUSED: Final = 1  # exit status
ONLY_SFTP: Final = (
    "Your data folders are reached by SFTP alone: with sftp, scp, sshfs, rclone and the like. "
    "For a shell, rsync or scp -O connect to a session that mounts them."
)


class _ExitingWriter(asyncssh.SSHWriter[bytes]):
    """Ends the channel with an exit status, without which scp takes what it copied for failed."""

    def close(self) -> None:
        """Report success, and close the channel."""
        channel = self.channel
        assert isinstance(channel, asyncssh.SSHServerChannel)
        channel.exit(0)


class DataChannel(SSHServerStreamSession[bytes]):
    """A channel that serves SFTP, and says so where a shell or a command is wanted; `ended` is called at the end."""

    def __init__(self, principal: DataPrincipal, executor: Executor, ended: Callable[["DataChannel"], None]) -> None:
        super().__init__(None)
        self._principal = principal
        self._executor = executor
        self._ended = ended
        self._messages: asyncssh.SSHWriter[bytes] | None = None
        self._task: asyncio.Task[None] | None = None

    def shell_requested(self) -> bool:
        """Accept a request for a shell, to say why there is none."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Accept a command, to say why it does not run."""
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Accept SFTP, and no other subsystem."""
        return subsystem == SFTP

    def session_started(self) -> None:
        """Start serving."""
        channel = self._chan
        assert isinstance(channel, asyncssh.SSHServerChannel)
        self._messages = asyncssh.SSHWriter(self, channel, asyncssh.EXTENDED_DATA_STDERR)
        self._task = asyncio.create_task(self._serve(channel))

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is under way."""
        super().connection_lost(exc)
        if self._task is None:
            self._ended(self)
        else:
            self._task.cancel()

    async def _serve(self, channel: "asyncssh.SSHServerChannel[bytes]") -> None:
        try:
            if channel.get_subsystem() == SFTP:
                await self._serve_sftp(channel)
            else:
                self.show(ONLY_SFTP)
                channel.exit(REFUSED)
        except Exception:
            logger.exception("%s: an SFTP channel broke", self._principal)
            channel.close()
        finally:
            self._ended(self)

    def show(self, message: str) -> None:
        """Write the message to standard error, which OpenSSH's programs show."""
        if self._messages:
            with suppress(OSError):
                self._messages.write(f"{message}\r\n".encode())

    async def finished(self) -> None:
        """Wait until the channel is done."""
        if self._task:
            await asyncio.wait([self._task])

    async def _serve_sftp(self, channel: "asyncssh.SSHServerChannel[bytes]") -> None:
        reader, writer = asyncssh.SSHReader(self, channel), _ExitingWriter(self, channel)
        folders = DataFolders(self._principal.user_id)
        server = DataSftpServer(channel, folders, self._executor, self.show, writer.drain)
        try:
            await SFTPServerHandler(server, reader, writer, SFTP_VERSION).run()
        except OSError as error:
            logger.info("%s: the client left: %s", self._principal, error)
        finally:
            await server.end()
