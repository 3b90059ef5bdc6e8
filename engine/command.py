"""A process in a running container without a terminal: input that can end, and output and errors apart."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from engine import shell
from engine.engine import Engine
from engine.exec_stream import READ_BYTES, Exec, start_attached
from engine.frames import FRAME_HEAD
from engine.http import Streams

ERRORS: Final = 2


class Command(Exec):
    """An exec whose first line of output is its process id; started by `start`, ended by `hang_up`."""

    def __init__(self, engine: Engine, exec_id: str, streams: Streams) -> None:
        super().__init__(engine, exec_id, streams)
        self._stream = 0
        self._left = 0  # bytes of the frame that were not yet read
        self._early_errors = b""  # that came before the first line of output: the engine copies the two apart
        self._container_id = ""
        self._process_id = 0

    @classmethod
    async def start(
        cls,
        engine: Engine,
        container_id: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        what: str = "command",
    ) -> Self:
        """Start `command`, which must print its process id first and lead a process session.

        Raises ExecError, whose message names `what`.
        """
        made = cls(engine, *await start_attached(engine, container_id, command, environment, is_terminal=False))
        try:
            made._process_id, made._container_id = await shell.read_process_id(made._first_line, what), container_id
        except BaseException:
            made.close()
            raise
        return made

    async def read(self, most: int = READ_BYTES) -> tuple[bytes, bool]:
        """Return the next bytes, and whether they are errors rather than output; no bytes once both have ended."""
        if early := self._early_errors[:most]:
            self._early_errors = self._early_errors[most:]
            return early, True
        with suppress(ConnectionError):
            while not self._left:
                head = b""
                while missing := FRAME_HEAD - len(head):
                    if not (part := await self._read_raw(missing)):
                        return b"", False
                    head += part
                self._stream, self._left = head[0], int.from_bytes(head[4:])
            data = await self._read_raw(min(self._left, most))
            self._left -= len(data)
            return data, self._stream == ERRORS
        return b"", False

    async def end_input(self) -> None:
        """Close the process's input after what was written."""
        with suppress(OSError):
            self._writer.write_eof()

    async def hang_up(self) -> None:
        """End the process and what it runs; ended already is success."""
        await shell.hang_up(self, self._engine, self._container_id, self._process_id)

    async def _first_line(self) -> bytes:
        """Return the first line of output, or what there is where it ends before; keep earlier errors for `read`."""
        line = errors = b""
        while not line.endswith(b"\n"):
            data, is_error = await self.read(1)  # what follows belongs to the caller
            if not data:
                return line or errors
            if is_error:
                errors += data
            else:
                line += data
        self._early_errors = errors
        return line
