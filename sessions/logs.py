"""What a session's container wrote: read from the engine while it lives, from the row once it has ended."""

from typing import Final

from django.conf import settings

from sessions.lifecycle import FINAL, IN_CONTAINER, Status
from sessions.models import Session
from sessions.runtime.base import EngineUnreachable, RuntimeFailure
from sessions.runtime.factory import get_runtime

PANEL_LINES: Final = 500
DOWNLOAD_LINES: Final = 10_000


class LogsUnavailable(Exception):
    """The output cannot be read now; the message is fit for the user."""


def read(session: Session, tail: int) -> str:
    """Return the last `tail` lines of output, "" before there is any. Raises LogsUnavailable with the cause."""
    if session.status in FINAL:
        return "\n".join(session.log_tail.splitlines()[-tail:])
    if Status(session.status) not in IN_CONTAINER or session.host is None:
        return ""
    host = session.host.name
    if host != settings.COMPUTE_HOST_NAME:
        raise LogsUnavailable(
            f"This session runs on host {host}, whose output cannot be read from here while it runs. "
            "Its last lines are kept when it ends."
        )
    try:
        return get_runtime().logs(session.pk, session.attempt, tail)
    except EngineUnreachable as failure:
        raise LogsUnavailable(f"The container engine of host {host} does not answer. Try again later.") from failure
    except RuntimeFailure as failure:
        raise LogsUnavailable(f"Host {host} cannot read the output: {failure}") from failure
