"""The output of a session: read from the container engine while it runs, from its row once it has ended.

That of a cluster is the output of all its members, in the order of time, each line with the member that wrote it.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, starmap
from operator import attrgetter
from typing import Final

from asgiref.sync import async_to_sync
from django.utils.translation import gettext as _

from engine.containers import container_name
from engine.engine import Engine, ExecError
from engine.output import LOG_LIMIT, last_entries, last_lines
from sessions.access.engine_address import HostUnreachableError, engine_of
from sessions.errors import RejectedError
from sessions.lifecycle import FINAL, IN_CONTAINER, Status
from sessions.models import Session

PANEL_LINES: Final = 500
DOWNLOAD_LINES: Final = 10_000
ALL: Final = "all"  # in place of a member's name
MAX_AT_ONCE: Final = 8  # engines that are asked together

_Source = Engine | HostUnreachableError | None  # of output; an error where its engine is not reached
_Lines = list[tuple[str, str]]  # (time, line without its end), the time as `LogEntry` has it


class LogsUnavailableError(Exception):
    """The output cannot be read now; the message is for the user."""


def chosen(session: Session, member: str = "") -> list[Session]:
    """Return the members whose output is asked for by the name of one, or ALL.

    By default these are all of a cluster, by the id of its first member; else it alone. Raises RejectedError for
    `member`.
    """
    if not member and (session.rank or session.cluster_id is None):
        return [session]
    members = list(session.members.select_related("host"))
    if member in ("", ALL):
        return members
    found = [each for each in members if each.member_name == member]
    if not found:
        raise RejectedError({"member": _("This session has no member of this name.")})
    return found


def read(session: Session, tail: int, member: str = "") -> str:
    """Return the last `tail` lines of output of the members that are `chosen`, "" before there is any.

    Raises LogsUnavailableError with the cause, of one member; and RejectedError.
    """
    members = chosen(session, member)
    if len(members) > 1:
        return read_together(members, tail, attrgetter("member_name"))
    (one,) = members
    if _is_stored(one):
        return "\n".join(one.log_tail.splitlines()[-tail:])
    if not _has_container(one):
        return ""
    try:
        name = container_name(one.pk, one.attempt)
        return async_to_sync(last_lines)(engine_of(one.host), name, tail)
    except (HostUnreachableError, ExecError) as failure:
        raise LogsUnavailableError(f"{failure} The session's last lines are stored when it ends.") from failure


def read_previous(session: Session, tail: int, member: str = "") -> str:
    """Return the same of the attempt before, as far as it was kept; "" where there was none. Raises RejectedError."""
    members = chosen(session, member)
    outputs = [(each, each.previous_output.splitlines()[-tail:]) for each in members]
    if len(members) == 1:
        return "\n".join(outputs[0][1])
    return "".join(f"{each.member_name} | {line}\n" for each, lines in outputs for line in lines)


def read_together(sessions: Sequence[Session], tail: int, name_of: Callable[[Session], str]) -> str:
    """Return the last `tail` lines of the output of all of these, each with the name of the session that wrote it."""
    return async_to_sync(_merged)([(each, _engine_with_output(each)) for each in sessions], tail, name_of)


def _is_stored(session: Session) -> bool:
    return session.status in FINAL or session.status == Status.PARKED


def _has_container(session: Session) -> bool:
    return Status(session.status) in IN_CONTAINER and session.host is not None


def _engine_with_output(member: Session) -> _Source:
    """Return the engine that has a member's output, or why none is reached; None where no engine has it."""
    if _is_stored(member) or not _has_container(member):
        return None
    try:
        return engine_of(member.host)
    except HostUnreachableError as failure:
        return failure


async def _merged(members: Sequence[tuple[Session, _Source]], tail: int, name_of: Callable[[Session], str]) -> str:
    """Return the last lines of all in the order of time; what was stored is of the time at which its member ended."""
    turns = asyncio.Semaphore(MAX_AT_ONCE)

    async def lines_of(member: Session, engine: _Source) -> _Lines:
        async with turns:
            lines = await _lines_of(member, engine, tail)
        return [(at, f"{name_of(member)} | {line}") for at, line in lines]

    merged = list(chain.from_iterable(await asyncio.gather(*starmap(lines_of, members))))
    merged.sort(key=lambda each: each[0])
    return "".join(f"{line}\n" for _at, line in merged[-tail:])


async def _lines_of(member: Session, engine: _Source, tail: int) -> _Lines:
    if _is_stored(member):
        at = f"{member.status_at.timestamp():.9f}"
        return [(at, line) for line in member.log_tail.splitlines()[-tail:]]
    if engine is None:
        return []
    try:
        if isinstance(engine, HostUnreachableError):
            raise engine
        entries = await last_entries(
            engine, container_name(member.pk, member.attempt), tail, limit=LOG_LIMIT // MAX_AT_ONCE
        )
    except (HostUnreachableError, ExecError) as failure:
        return [(f"{member.status_at.timestamp():.9f}", str(failure))]
    lines, begun = [], ""  # a long line has several entries
    for entry in entries:
        *whole, begun = (begun + entry.content.decode(errors="replace")).split("\n")
        lines += [(entry.stamp, line) for line in whole]
    return [*lines, (entries[-1].stamp, begun)] if begun else lines
