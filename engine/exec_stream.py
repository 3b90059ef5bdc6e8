"""A process in a running container: with a terminal of its own, as a stream of bytes; see `command` for without."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from engine.engine import Engine, ExecError, refusal
from engine.http import Streams

READ_BYTES: Final = 64 * 1024
FIRST_PAUSE_SECONDS: Final = 0.02
MAX_PAUSE_SECONDS: Final = 2.0
END_CHECK_SECONDS: Final = 0.5
READ_AHEAD_BYTES: Final = 2 * 2**20  # the engine lets go of what its two pipes hold of a process that has ended
# The engine holds back a key that could begin its detach sequence, and the sequence cannot be switched off. The
# default begins with Ctrl-P, which shells use; this one begins with NUL, which waits unnoticed for the next key.
DETACH_KEYS: Final = "ctrl-@,ctrl-\\"


class Exec:
    """An exec that has been started, with its connection; ended by `close`.

    Back-pressure is the connection's: at most some 128 KiB of a running process's output are read ahead, and `write`
    waits for the container.
    """

    def __init__(self, engine: Engine, exec_id: str, streams: Streams) -> None:
        self._engine = engine
        self._exec_id = exec_id
        self._reader, self._writer = streams
        self._ahead = bytearray()  # what was read during a pause
        self._check_at = time.monotonic() + END_CHECK_SECONDS  # whether it has ended; over all pauses, however short

    async def write(self, data: bytes) -> None:
        """Send `data` to the process, waiting while its input buffer is full; ignored once the process has ended."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def exit_code(self) -> int | None:
        """Return the exit code of the process, None while it runs. Raises ExecError."""
        return await exit_code(self._engine, self._exec_id)

    async def ended(self) -> int:
        """Return the exit code once there is one, for a process whose output has ended. Raises ExecError."""
        return await ended(self._engine, self._exec_id)

    async def pause(self, until: Awaitable[object]) -> None:
        """Wait for `until` before the next `read`, however long that is, without a loss of output.

        The engine discards what was not taken of it two seconds after the process's end (Docker 20.10, `ProcessEvent`),
        and reports success. So where the process has ended, the rest is read into memory. Raises what `until` raises.
        """
        waiting = asyncio.ensure_future(until)
        try:
            while not (await asyncio.wait([waiting], timeout=max(0.0, self._check_at - time.monotonic())))[0]:
                if len(self._ahead) < READ_AHEAD_BYTES and await self._may_have_ended():
                    await self._read_ahead()
                self._check_at = time.monotonic() + END_CHECK_SECONDS
            await waiting
        finally:
            waiting.cancel()

    def close(self) -> None:
        """Abort the connection and discard unread output. The process goes on; see `shell.hang_up`."""
        self._writer.transport.abort()  # `close` would wait for a process that does not read

    async def _may_have_ended(self) -> bool:
        """Return whether the process has ended; also True where the engine cannot say so at once."""
        try:
            async with asyncio.timeout(END_CHECK_SECONDS):
                return await self.exit_code() is not None
        except (ExecError, TimeoutError):
            return True

    async def _read_ahead(self) -> None:
        """Read what comes at once."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(END_CHECK_SECONDS):
                while len(self._ahead) < READ_AHEAD_BYTES and (data := await self._reader.read(READ_BYTES)):
                    self._ahead += data

    async def _read_raw(self, most: int) -> bytes:
        if not self._ahead:
            return await self._reader.read(most)
        data = bytes(self._ahead[:most])
        del self._ahead[:most]
        return data


class ExecStream(Exec):
    """What a terminal emulator needs of an exec: read, write, resize, exit code. Opened by `open`."""

    @classmethod
    async def open(
        cls, engine: Engine, container_id: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> Self:
        """Start `command` in the container as its own user and in its own working directory. Raises ExecError."""
        return cls(engine, *await start_attached(engine, container_id, command, environment, is_terminal=True))

    async def read(self) -> bytes:
        """Return the next bytes of output, as many as there are; empty once the process has ended."""
        with suppress(ConnectionError):
            return await self._read_raw(READ_BYTES)
        return b""

    async def read_line(self) -> bytes:
        """Return output through the next newline, or all there is at the process's end; b"" for too long a line."""
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as ended:
            return ended.partial
        except (asyncio.LimitOverrunError, ConnectionError):
            return b""

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal window. Raises ExecError, also when the process has ended."""
        answer = await self._engine.request("POST", f"/exec/{self._exec_id}/resize?w={columns}&h={rows}")
        if not answer.is_success:
            raise ExecError(refusal(answer))


async def start_attached(
    engine: Engine, container_id: str, command: Sequence[str], environment: Mapping[str, str], *, is_terminal: bool
) -> tuple[str, Streams]:
    """Start `command` in the container; return the exec's id and the connection to it. Raises ExecError."""
    attached = {"Tty": is_terminal, "AttachStdin": True, "AttachStdout": True, "AttachStderr": True}
    detach_keys = {"DetachKeys": DETACH_KEYS} if is_terminal else {}
    exec_id = await create_exec(engine, container_id, command, environment, {**attached, **detach_keys})
    return exec_id, await engine.hijack(f"/exec/{exec_id}/start", {"Tty": is_terminal, "Detach": False})


async def exit_code(engine: Engine, exec_id: str) -> int | None:
    """Return the exit code of an exec, None while it runs. Raises ExecError."""
    answer = await engine.request("GET", f"/exec/{exec_id}/json")
    if not answer.is_success:
        raise ExecError(refusal(answer))
    state = answer.json()
    # The engine writes the two fields one after the other, and responds without waiting for the second.
    return None if state.get("Running") or state.get("ExitCode") is None else int(state["ExitCode"])


async def ended(engine: Engine, exec_id: str) -> int:
    """Return the exit code of an exec once there is one. Raises ExecError."""
    pause = FIRST_PAUSE_SECONDS  # the engine reports the exit a moment after the output ends
    while (code := await exit_code(engine, exec_id)) is None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)
    return code


async def run_detached(engine: Engine, container_id: str, command: Sequence[str]) -> str:
    """Start `command` in the container without waiting for it; return the exec's id. Raises ExecError."""
    exec_id = await create_exec(engine, container_id, command, {}, {})
    answer = await engine.request("POST", f"/exec/{exec_id}/start", {"Detach": True})
    if not answer.is_success:
        raise ExecError(refusal(answer))
    return exec_id


async def is_running(engine: Engine, container_id: str) -> bool:
    """Return whether the container runs; one that is gone does not. Raises ExecError."""
    answer = await engine.request("GET", f"/containers/{container_id}/json")
    if answer.status == 404:
        return False
    return bool(answer.json().get("State", {}).get("Running"))


async def create_exec(
    engine: Engine,
    container_id: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    options: Mapping[str, Any],
) -> str:
    """Create an exec with the engine's `options` and return its id. Raises ExecError."""
    config = {"Cmd": list(command), "Env": [f"{name}={value}" for name, value in environment.items()], **options}
    answer = await engine.request("POST", f"/containers/{container_id}/exec", config)
    if not answer.is_success:
        raise ExecError(refusal(answer))
    return str(answer.json()["Id"])
