"""Runs the platform's processes as one: all start together, their lines are shown in order, and all end together."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

GRACE_SECONDS: Final = 15.0  # for a worker to finish what it is doing
READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.3
DRAIN_SECONDS: Final = 2.0
CHUNK: Final = 65536
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COLOURS: Final = (36, 33, 32, 35, 34)  # of the prefixes, on a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process to run: its name in front of each line, its arguments, and what to add to the environment."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Runs commands until it is told to stop or one of them ends by itself.

    Each runs in a process group of its own, so that Ctrl-C reaches it once, through us. Should this process be killed,
    the kernel ends them (prctl PR_SET_PDEATHSIG): no half of a platform is left behind.
    """

    def __init__(self, commands: Sequence[Command], *, folder: Path, output: TextIO) -> None:
        self._commands = commands
        self._folder = folder
        self._output = output
        self._width = max(len(command.name) for command in commands)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self, is_ready: Callable[[], bool], on_ready: Callable[[bool], None]) -> str | None:
        """Return None after a signal asked to stop, or a sentence that names the process that ended by itself.

        `is_ready` is polled in a thread; `on_ready` is called once, with False when that took too long.
        """
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        processes: dict[str, asyncio.subprocess.Process] = {}
        relays: list[asyncio.Task[None]] = []
        try:
            for index, command in enumerate(self._commands):
                process = await self._start(command)
                processes[command.name] = process
                relays.append(asyncio.create_task(self._relay(command.name, index, process)))
            announcer = asyncio.create_task(self._announce(is_ready, on_ready))
            ended = await self._first_end(processes)
            announcer.cancel()
        finally:
            await self._end_all(processes)
            if relays:
                await asyncio.wait(relays, timeout=DRAIN_SECONDS)
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
        return ended

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _start(self, command: Command) -> asyncio.subprocess.Process:
        follow_us = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        return await asyncio.create_subprocess_exec(
            *follow_us,
            *command.arguments,
            cwd=self._folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **command.environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    async def _first_end(self, processes: Mapping[str, asyncio.subprocess.Process]) -> str | None:
        """Wait for a stop signal or the first process to end; a stop is not an end."""
        names = {asyncio.create_task(process.wait()): name for name, process in processes.items()}
        stop = asyncio.create_task(self._stop.wait())
        done, pending = await asyncio.wait({stop, *names}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if stop in done:
            self._say("Stopping; press Ctrl-C again to end at once")
            return None
        first = next(iter(done & names.keys()))
        return f"the process {names[first]!r} ended by itself, {_how(first.result())}; its last lines are above"

    async def _announce(self, is_ready: Callable[[], bool], on_ready: Callable[[bool], None]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        ready = False
        while not ready and time.monotonic() < deadline:
            ready = await asyncio.to_thread(is_ready)
            if not ready:
                await asyncio.sleep(POLL_SECONDS)
        await asyncio.to_thread(on_ready, ready)

    async def _end_all(self, processes: Mapping[str, asyncio.subprocess.Process]) -> None:
        """Ask every process group to end, and kill what is left after the grace or a second signal."""
        _signal_groups(processes, signal.SIGTERM)
        ends = [asyncio.create_task(process.wait()) for process in processes.values()]
        if not ends:
            return
        all_ended = asyncio.gather(*ends)
        hurry = asyncio.create_task(self._hurry.wait())
        first: set[asyncio.Future[Any]] = {all_ended, hurry}
        await asyncio.wait(first, timeout=GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        for name, process in processes.items():
            if process.returncode is None:
                self._say(f"{name} did not end in time and is killed")
        _signal_groups(processes, signal.SIGKILL)  # of a group whose leader has ended, this ends the rest
        await all_ended

    async def _relay(self, name: str, index: int, process: asyncio.subprocess.Process) -> None:
        """Show the lines of a process, each behind its name; a line longer than a chunk is shown in parts."""
        prefix = f"{name:<{self._width}} | "
        if self._output.isatty():
            prefix = f"\033[{COLOURS[index % len(COLOURS)]}m{prefix}\033[0m"
        if process.stdout is None:
            return
        rest = b""
        while chunk := await process.stdout.read(CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > CHUNK:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(prefix + line.decode(errors="replace"))
        if rest:
            self._say(prefix + rest.decode(errors="replace"))

    def _say(self, line: str) -> None:
        with suppress(OSError):  # the terminal may be gone, and the processes must be stopped nonetheless
            self._output.write(f"{line}\n")
            self._output.flush()


def _signal_groups(processes: Mapping[str, asyncio.subprocess.Process], number: signal.Signals) -> None:
    for process in processes.values():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _how(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
