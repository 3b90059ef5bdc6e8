"""Messages to everybody who has a terminal of a session open."""

import logging
from typing import Final

from hostworker.runtime_protocol import ContainerRuntimeError, Runtime
from sessions.models import Session

logger = logging.getLogger(__name__)

# Written to every terminal, as by wall(1).
WALL: Final = (
    r"""for terminal in /dev/pts/[0-9]*; do printf '\r\n[GPU Platform] %s\r\n' "$GP_TEXT" >"$terminal"; done"""
)


def write_to_terminals(runtime: Runtime, session: Session, text: str) -> None:
    """Write the text to the terminals of a running session; one without any, or that has ended, is fine."""
    try:
        runtime.execute(session.pk, session.attempt, ["/bin/sh", "-c", WALL], {"GP_TEXT": text})
    except ContainerRuntimeError as error:
        logger.info("session %s: a message did not reach its terminals: %s", session.pk, error)
