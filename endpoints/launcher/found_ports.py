"""What listens in a running session: apps that its image does not name, found by their ports."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from asgiref.sync import async_to_sync

from engine.containers import container_name
from engine.engine import ExecError
from engine.run import run
from hostworker.app_processes.scripts import LISTENING, listening_ports
from sessions.access.engine_address import HostUnreachableError, find_engine
from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 3.0
OUTPUT_LIMIT: Final = 64 * 1024  # bytes
MAX_FOUND: Final = 12  # ports; more are no apps
LOWEST_PORT: Final = 1024


@dataclass(frozen=True, slots=True)
class FoundPort:
    """A port on which a program of the session listens."""

    port: int
    is_loopback_only: bool  # so that nothing outside the container reaches it


def found_ports(session: Session) -> list[FoundPort]:
    """Return the ports on which the running session listens, beside those of its image's apps; [] if it cannot be read.

    Takes one program in the container, and one query.
    """
    if session.status != Status.RUNNING or session.has_host_network:
        return []
    try:
        text = async_to_sync(_read)(session)
    except (HostUnreachableError, ExecError, TimeoutError, OSError) as error:
        logger.debug("session %s: its ports cannot be read: %s", session.pk, error)
        return []
    named = {app.port for app in session.image.apps.all()}
    ports = sorted((port, is_loopback) for port, is_loopback in listening_ports(text).items() if port >= LOWEST_PORT)
    return [FoundPort(port, is_loopback) for port, is_loopback in ports if port not in named][:MAX_FOUND]


async def _read(session: Session) -> str:
    command, container = ["/bin/sh", "-c", LISTENING], container_name(session.pk, session.attempt)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        _, output = await run(await find_engine(session.host), container, command, {}, limit=OUTPUT_LIMIT)
    return output.decode(errors="replace")
