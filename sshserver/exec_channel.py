"""The base of the channels of an SSH connection: copies bytes to and from an exec of the engine, with back-pressure."""

import asyncio
from collections.abc import Callable
from typing import Final

import asyncssh
from asyncssh.channel import SSHChannel

from engine.command import Command
from engine.shell import Shell
from sshserver.access import SshPrincipal

INPUT_LIMIT: Final = 256 * 1024  # bytes received and not yet written to the process; above it the channel stops reading

Process = Shell | Command


class ExecChannel:
    """The callbacks of asyncssh's sessions that copy bytes; `used` is called on each input, `ended` at the end."""

    def __init__(
        self, principal: SshPrincipal, used: Callable[[], None], ended: Callable[["ExecChannel"], None]
    ) -> None:
        self._principal = principal
        self._used = used
        self._ended = ended
        self._channel: SSHChannel[bytes] | None = None
        self._input: asyncio.Queue[bytes] = asyncio.Queue()  # empty: the end
        self._input_size = 0
        self._is_reading = True
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, chan: SSHChannel[bytes]) -> None:
        """Store the channel."""
        self._channel = chan

    def session_started(self) -> None:
        """Start copying."""
        self._used()
        self._task = asyncio.create_task(self._run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Queue input; pause reading once more than INPUT_LIMIT is queued."""
        self._used()
        self._input.put_nowait(data)
        self._input_size += len(data)
        if self._input_size > INPUT_LIMIT and self._channel and self._is_reading:
            self._is_reading = False
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        """Queue the end of the input; the output continues."""
        self._input.put_nowait(b"")
        return True

    def pause_writing(self) -> None:
        """Pause output: the client's window is full."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Resume output."""
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the task, which ends the process."""
        self._channel = None
        if self._task is None:
            self._ended(self)
        else:
            self._task.cancel()

    async def finished(self) -> None:
        """Wait until the process has ended and the task is done."""
        if self._task:
            await asyncio.wait([self._task])

    def show(self, message: str) -> None:
        """Show the message to the user, where the kind of channel has a place for it."""

    async def _run(self) -> None:
        """Copy until the process or the channel ends; then end the other, and call `ended`."""
        raise NotImplementedError

    async def _pump_output(self, process: Process) -> None:
        while True:
            data, is_error = await process.read() if isinstance(process, Command) else (await process.read(), False)
            if not data:
                return
            self._write(data, is_error)
            if not self._can_write.is_set():
                await process.pause(self._can_write.wait())

    def _write(self, data: bytes, is_error: bool) -> None:
        if self._channel:
            self._channel.write(data, asyncssh.EXTENDED_DATA_STDERR if is_error else None)

    async def _pump_input(self, process: Process) -> None:
        while data := await self._input.get():
            await process.write(data)
            self._input_size -= len(data)
            if self._input_size <= INPUT_LIMIT // 2 and self._channel and not self._is_reading:
                self._is_reading = True
                self._channel.resume_reading()
        if isinstance(process, Command):
            await process.end_input()
