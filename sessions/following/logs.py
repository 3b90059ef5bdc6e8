"""The output of a session: read from the container engine while it runs, from its row once it has ended."""

from typing import Final

from asgiref.sync import async_to_sync

from engine.containers import container_name
from engine.engine import ExecError
from engine.output import last_lines
from sessions.access.engine_address import HostUnreachableError, engine_of
from sessions.lifecycle import FINAL, IN_CONTAINER, Status
from sessions.models import Session

PANEL_LINES: Final = 500
DOWNLOAD_LINES: Final = 10_000


class LogsUnavailableError(Exception):
    """The output cannot be read now; the message is for the user."""


def read(session: Session, tail: int) -> str:
    """Return the last `tail` lines of output, "" before there is any. Raises LogsUnavailableError with the cause."""
    if session.status in FINAL or session.status == Status.PARKED:
        return "\n".join(session.log_tail.splitlines()[-tail:])
    if Status(session.status) not in IN_CONTAINER or session.host is None:
        return ""
    try:
        name = container_name(session.pk, session.attempt)
        return async_to_sync(last_lines)(engine_of(session.host), name, tail)
    except (HostUnreachableError, ExecError) as failure:
        raise LogsUnavailableError(f"{failure} The session's last lines are stored when it ends.") from failure
