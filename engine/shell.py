"""The user's shell in a container: attached to tmux where the image has it, and ended with its connection."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Self

from engine.containers import READ_VARIABLES
from engine.engine import Engine, ExecError
from engine.exec_stream import Exec, ExecStream, ended, is_running, run_detached

logger = logging.getLogger(__name__)

MAX_DIGITS: Final = 10  # of a process id
START_TIMEOUT_SECONDS: Final = 30.0  # an engine under load accepts a start seconds before the process begins
KILLED: Final = 128 + 9  # exit code of what SIGKILL ended
CUT_OFF: Final = 126  # the engine's exit code when it could not deliver the output; the process may still run
EXIT_CHECKS: Final = 20
EXIT_CHECK_PAUSE_SECONDS: Final = 0.1
PROBE_SECONDS: Final = 2.0  # for a command in the container
ENVIRONMENT: Final = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
CONFIRM: Final = b"\x04"  # the terminal's end of file, which ends a `read` and is not echoed
# The first line is the process id of the shell: `exec` keeps it. Programs such as tmux begin by discarding what was
# written and not read yet (tcflush), so the script waits until the line has arrived.
START: Final = f"""
echo $$
read -r _
{READ_VARIABLES}
export LANG="${{LANG:-C.UTF-8}}"
if command -v tmux >/dev/null 2>&1; then exec tmux -u new-session -A -s gp; fi
if command -v bash >/dev/null 2>&1; then exec bash -l; fi
exec sh -l
"""
# Without tmux, for SSH clients, which have a terminal of their own and may send a command.
PLAIN_START: Final = f"""
echo $$
if [ -t 0 ]; then read -r _; fi
{READ_VARIABLES}
export LANG="${{LANG:-C.UTF-8}}"
shell=sh
if command -v bash >/dev/null 2>&1; then shell=bash; fi
if [ $# -gt 0 ]; then exec "$shell" -c "$1"; fi
exec "$shell" -l
"""
# What the kernel does when a terminal is closed, since the engine keeps the terminal open: all processes of the
# terminal's session, whose id is the shell's process id ($0), get SIGHUP. A tmux server has a session of its own.
HANG_UP: Final = """
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    set -- ${line##*) }
    if [ "$4" = "$0" ]; then process=${stat#/proc/}; kill -HUP "${process%/stat}"; fi
done
"""

IS_THERE: Final = 'kill -0 "$0"'


class Shell(ExecStream):
    """An exec that runs START; opened by `start`, ended by `hang_up`."""

    process_id = 0  # as seen inside the container
    container_id = ""

    @classmethod
    async def start(
        cls,
        engine: Engine,
        container_id: str,
        command: Sequence[str] = ("/bin/sh", "-c", START),
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> Self:
        """Run a command that prints its process id, reads CONFIRM, and then becomes the shell. Raises ExecError."""
        shell = await cls.open(engine, container_id, command, environment)
        try:
            shell.process_id, shell.container_id = await read_process_id(shell.read_line), container_id
            await shell.write(CONFIRM)
        except BaseException:
            shell.close()
            raise
        return shell

    async def is_container_running(self) -> bool:
        """Return whether the container still runs, for a shell that has ended. Raises ExecError.

        A dying container kills its shells a moment before the engine reports its exit, so the check is repeated.
        """
        for check in range(EXIT_CHECKS):
            if not await is_running(self._engine, self.container_id):
                return False
            if await self.exit_code() not in (None, KILLED) or (check == 0 and await self._is_there()):
                return True
            await asyncio.sleep(EXIT_CHECK_PAUSE_SECONDS)
        return True

    async def _is_there(self) -> bool:
        """Return whether the shell goes on although its output has ended, since what relays that broke."""
        command = ["/bin/sh", "-c", IS_THERE, str(self.process_id)]
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                probe = await run_detached(self._engine, self.container_id, command)
                return await ended(self._engine, probe) == 0
        except (ExecError, TimeoutError):  # as the container dies
            return False

    async def hang_up(self) -> None:
        """End the shell and what it runs; a tmux client detaches, and its shells go on. Ended already is success."""
        await hang_up(self, self._engine, self.container_id, self.process_id)


async def read_process_id(read_line: Callable[[], Awaitable[bytes]], what: str = "shell") -> int:
    """Return the process id in the first line of output. Raises ExecError, whose message names `what` was started."""
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            first_line = (await read_line()).decode(errors="replace").strip()
    except TimeoutError as error:
        raise ExecError(f"The {what} did not start in time.") from error
    if not first_line.isdecimal() or len(first_line) > MAX_DIGITS:
        words = "".join(filter(str.isprintable, first_line))
        raise ExecError(f"No {what} could be started: {words or 'the container ended'}")
    return int(first_line)


async def hang_up(process: Exec, engine: Engine, container_id: str, process_id: int) -> None:
    """Close the connection and send SIGHUP to the process's session, even if the caller is cancelled."""
    process.close()
    end = asyncio.create_task(_end(process, engine, container_id, process_id))
    try:
        await asyncio.shield(end)
    except asyncio.CancelledError:
        await asyncio.wait([end])
        raise


async def _end(process: Exec, engine: Engine, container_id: str, process_id: int) -> None:
    try:
        if await process.exit_code() in (None, CUT_OFF):
            await run_detached(engine, container_id, ["/bin/sh", "-c", HANG_UP, str(process_id)])
    except ExecError as error:
        logger.info("container %s: could not hang up a shell: %s", container_id, error)
