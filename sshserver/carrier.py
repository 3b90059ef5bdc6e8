"""What the channels of an SSH connection have in common: bytes to and from a process, at the pace of the slower."""

import asyncio
from collections.abc import Callable
from typing import Final

import asyncssh
from asyncssh.channel import SSHChannel

from engine.command import Command
from engine.shell import Shell
from sshserver.access import Guest

INPUT_LIMIT: Final = 256 * 1024  # bytes received and not yet taken by the process; then the client has to wait

Process = Shell | Command


class Carrier:
    """The callbacks of asyncssh's sessions that move bytes; `used` hears of each input, `ended` of the end."""

    def __init__(self, guest: Guest, used: Callable[[], None], ended: Callable[["Carrier"], None]) -> None:
        self._guest = guest
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
        """Keep the channel."""
        self._channel = chan

    def session_started(self) -> None:
        """Begin to carry."""
        self._used()
        self._task = asyncio.create_task(self._run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Queue input; a client that sends faster than the process reads has to wait."""
        self._used()
        self._input.put_nowait(data)
        self._input_size += len(data)
        if self._input_size > INPUT_LIMIT and self._channel and self._is_reading:
            self._is_reading = False
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        """Queue the end of the input; the output goes on."""
        self._input.put_nowait(b"")
        return True

    def pause_writing(self) -> None:
        """Hold the output back: the client lags behind."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Let the output go on."""
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the process with the channel."""
        self._channel = None
        if self._task is None:
            self._ended(self)
        else:
            self._task.cancel()

    async def finished(self) -> None:
        """Return once nothing of the channel is left."""
        if self._task:
            await asyncio.wait([self._task])

    def tell(self, words: str) -> None:
        """Show the words to the user, where the channel has a place for them."""

    async def _run(self) -> None:
        """Carry until the end, and leave nothing behind."""
        raise NotImplementedError

    async def _pump_output(self, process: Process) -> None:
        while True:
            data, is_error = await process.read() if isinstance(process, Command) else (await process.read(), False)
            if not data:
                return
            self._write(data, is_error)
            await self._can_write.wait()

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
