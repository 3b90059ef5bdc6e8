"""The output of a session: read from the container engine while it runs, from its row once it has ended."""

from typing import Final

from asgiref.sync import async_to_sync

from engine.engine import ExecError
from engine.output import last_lines
from hostworker.runtime.base import ContainerRuntimeError, EngineUnreachableError
from hostworker.runtime.container_config import container_name
from hostworker.runtime.factory import get_runtime
from sessions.engine_address import HostUnreachableError, engine_of, is_here
from sessions.lifecycle import FINAL, IN_CONTAINER, Status
from sessions.models import Session

PANEL_LINES: Final = 500
DOWNLOAD_LINES: Final = 10_000


class LogsUnavailableError(Exception):
    """The output cannot be read now; the message is for the user."""


def read(session: Session, tail: int) -> str:
    """Return the last `tail` lines of output, "" before there is any. Raises LogsUnavailableError with the cause."""
    if session.status in FINAL:
        return "\n".join(session.log_tail.splitlines()[-tail:])
    if Status(session.status) not in IN_CONTAINER or session.host is None:
        return ""
    if is_here(session.host):
        return _read_here(session, tail)
    try:
        name = container_name(session.pk, session.attempt)
        return async_to_sync(last_lines)(engine_of(session.host), name, tail)
    except (HostUnreachableError, ExecError) as failure:
        raise LogsUnavailableError(f"{failure} The session's last lines are stored when it ends.") from failure


def _read_here(session: Session, tail: int) -> str:
    try:
        return get_runtime().logs(session.pk, session.attempt, tail)
    except EngineUnreachableError as failure:
        words = f"The container engine of host {session.host} does not answer. Try again later."
        raise LogsUnavailableError(words) from failure
    except ContainerRuntimeError as failure:
        raise LogsUnavailableError(f"Host {session.host} cannot read the output: {failure}") from failure
