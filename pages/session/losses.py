"""What is lost when a running session ends: programs that run, and files in its home folder that is no data folder."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Final

from asgiref.sync import async_to_sync

from engine.containers import VARIABLES_PATH, container_name
from engine.engine import ExecError
from engine.run import run
from sessions.access.engine_address import HostUnreachableError, find_engine
from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 3.0
OUTPUT_LIMIT: Final = 64 * 1024  # bytes
MAX_PROGRAMS: Final = 6
NAME_LENGTH: Final = 60
MAX_DIGITS: Final = 18  # of an amount; the container may print anything

# The command lines of all processes first, then what the home folder holds on the container's own file system.
COUNT: Final = r"""
for process in /proc/[0-9]*; do
    tr '\0\n' '  ' < "$process/cmdline" && echo
done 2>/dev/null
echo "--"
cd "$HOME" 2>/dev/null || cd /home/work || exit 0
find . -xdev -type f ! -path '*/.*' ! -name id_container | wc -l
du -skx . | cut -f1
"""
# What every session runs: init, the entry script and what it waits for, this program, terminals with their shells. A
# shell that reads the session's variables only waits for what it has started.
_OWN: Final = ("/sbin/docker-init ", "/dev/init ", "/bin/sh -c  end()", "sh -c  for process", "sleep 86400", "tmux")
_SHELLS: Final = frozenset({"bash", "dash", "fish", "sh", "zsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Programs with how often each runs, and the files; None is what could not be counted."""

    programs: list[tuple[str, int]]
    more_programs: int
    file_count: int | None
    size_bytes: int | None


def losses_of(session: Session) -> Losses | None:
    """Return what the running session would lose; None where it does not run or cannot be asked. One exec."""
    if session.status != Status.RUNNING:
        return None
    try:
        text = async_to_sync(_count)(session)
    except (HostUnreachableError, ExecError, TimeoutError, OSError) as error:
        logger.debug("session %s: what it would lose cannot be counted: %s", session.pk, error)
        return None
    return read_losses(text)


def read_losses(text: str) -> Losses:
    """Return what the output of COUNT tells."""
    commands, _, amounts = text.partition("\n--\n")
    found = Counter(_name(line) for line in map(str.strip, commands.splitlines()) if _is_program(line))
    numbers = [_amount(word) for word in amounts.split()] + [None, None]
    size = numbers[1]
    return Losses(
        programs=found.most_common(MAX_PROGRAMS),
        more_programs=max(0, len(found) - MAX_PROGRAMS),
        file_count=numbers[0],
        size_bytes=None if size is None else size * 1024,
    )


def _amount(word: str) -> int | None:
    return int(word) if word.isdecimal() and len(word) <= MAX_DIGITS else None


def _is_program(line: str) -> bool:
    """Return whether the command line is a program of the user's; a shell that only waits is none."""
    is_idle_shell = " " not in line and line.rpartition("/")[2].lstrip("-") in _SHELLS
    return bool(line) and not is_idle_shell and not line.startswith(_OWN) and VARIABLES_PATH not in line


def _name(line: str) -> str:
    words = line.split()
    words[0] = words[0].rpartition("/")[2]
    text = " ".join(words)
    return text if len(text) <= NAME_LENGTH else f"{text[: NAME_LENGTH - 1]}…"


async def _count(session: Session) -> str:
    container = container_name(session.pk, session.attempt)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        _, output = await run(await find_engine(session.host), container, ["sh", "-c", COUNT], {}, limit=OUTPUT_LIMIT)
    return output.decode(errors="replace")
