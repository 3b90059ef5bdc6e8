"""Record when each session was last used: terminal or SSH input, requests to its apps, busy Jupyter kernels.

`used` may be called for every byte of input: at most one write per session and COALESCE_SECONDS reaches the database,
so the recorded time may lag by that much. Each host's worker polls the Jupyter servers of its sessions.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from django.db import Error, close_old_connections
from django.db.models import F, Q
from django.utils import timezone

from hostworker.jupyter import TOKEN_VARIABLE, last_use
from resources.models import Host
from sessions.background import BackgroundThread
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session

logger = logging.getLogger(__name__)

COALESCE_SECONDS: Final = 30.0
MAX_REMEMBERED: Final = 10_000  # sessions; beyond it the cache is cleared, which costs some writes
POLL_INTERVAL_SECONDS: Final = 60.0  # between two polls of Jupyter
MAX_CONCURRENT: Final = 32  # requests

_writer = BackgroundThread("activity")
_lock = threading.Lock()
_written: dict[str, float] = {}  # when each session's use was last written, by the steady clock


def used(session_id: str) -> None:
    """Record that the session is used now. Cheap, never raises, callable from any thread or event loop."""
    now = time.monotonic()
    if _is_written(session_id, now):
        return
    with _lock:
        if _is_written(session_id, now):
            return
        if len(_written) >= MAX_REMEMBERED:
            _written.clear()
        _written[session_id] = now
    _writer.run(_write, session_id)


def record(session_id: str, at: datetime) -> None:
    """Store that the running session was used at `at`, unless a later use is stored."""
    is_news = Q(last_activity_at=None) | Q(last_activity_at__lt=at)
    Session.objects.filter(is_news, pk=session_id, status=Status.RUNNING).update(last_activity_at=at)


class Server(NamedTuple):
    """A Jupyter server of a running session."""

    session_id: str
    address: str
    port: int
    token: str


class JupyterActivity:
    """Polls the Jupyter servers of a host's sessions for their last use."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def poll(self) -> None:
        """Ask each server once when it was last used and record it; skip servers that do not answer."""
        for session_id, at in asyncio.run(_ask(self._servers())):
            record(session_id, at)

    def _servers(self) -> set[Server]:
        """Return the servers; several apps may be pages of one."""
        ready = Endpoint.objects.filter(
            state=EndpointState.READY,
            session__status=Status.RUNNING,
            session__host=self._host,
            session__address__isnull=False,
            session__image__apps__name=F("app"),
            session__image__apps__token_variable=TOKEN_VARIABLE,
        )
        rows = ready.values_list("session_id", "session__address", "port", "token")
        return {Server(session_id, str(address), port, token) for session_id, address, port, token in rows}


async def _ask(servers: Iterable[Server]) -> list[tuple[str, datetime]]:
    """Return (session id, last use) of the servers that answer."""
    slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def ask(server: Server) -> tuple[str, datetime | None]:
        async with slots:
            return server.session_id, await last_use(server.address, server.port, server.token, timezone.now())

    responses = await asyncio.gather(*map(ask, servers))
    return [(session_id, at) for session_id, at in responses if at]


def _is_written(session_id: str, now: float) -> bool:
    return now - _written.get(session_id, -COALESCE_SECONDS) < COALESCE_SECONDS


def _write(session_id: str) -> None:
    try:
        close_old_connections()
        record(session_id, timezone.now())
    except Error as error:
        _written.pop(session_id, None)
        logger.warning("session %s: its use could not be recorded: %s", session_id, error)
    finally:
        close_old_connections()
