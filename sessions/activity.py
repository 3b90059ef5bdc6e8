"""When each session was last used: by input in a terminal or over SSH, by requests to its apps, by busy kernels.

Whoever sees a use calls `used`, as often as it likes; what reaches the database is one write per session and
COALESCE_SECONDS, so the time kept may be older than the last use by as much. Jupyter is asked by its host's worker.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final, NamedTuple

from django.db import Error, close_old_connections
from django.db.models import F, Q
from django.utils import timezone

from hostworker.jupyter import TOKEN_VARIABLE, last_use
from resources.models import Host
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session

logger = logging.getLogger(__name__)

COALESCE_SECONDS: Final = 30.0
MAX_REMEMBERED: Final = 10_000  # sessions; beyond it all are forgotten, which costs some writes
POLL_INTERVAL_SECONDS: Final = 60.0  # between two rounds of asking Jupyter
ASKED_AT_ONCE: Final = 32

_writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="activity")
_lock = threading.Lock()
_written: dict[str, float] = {}  # when each session's use was last written, by the steady clock


def used(session_id: str) -> None:
    """Note that a user uses the session now. Cheap, never raises, callable from any thread or loop."""
    now = time.monotonic()
    if _is_noted(session_id, now):
        return
    with _lock:
        if _is_noted(session_id, now):
            return
        if len(_written) >= MAX_REMEMBERED:
            _written.clear()
        _written[session_id] = now
    _writer.submit(_write, session_id)


def note(session_id: str, at: datetime) -> None:
    """Keep that the running session was used then, unless a later use is known."""
    is_news = Q(last_activity_at=None) | Q(last_activity_at__lt=at)
    Session.objects.filter(is_news, pk=session_id, status=Status.RUNNING).update(last_activity_at=at)


class Server(NamedTuple):
    """A Jupyter server of a running session."""

    session_id: str
    address: str
    port: int
    token: str


class JupyterActivity:
    """The worker's watch over the Jupyter servers of its host's sessions."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def poll(self) -> None:
        """Ask each server once when it was last used, and note it; one that does not say is left alone."""
        for session_id, at in asyncio.run(_ask(self._servers())):
            note(session_id, at)

    def _servers(self) -> set[Server]:
        """Return the servers, of which several apps may be pages."""
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
    """Return (session, last use) as far as the servers tell."""
    few = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(server: Server) -> tuple[str, datetime | None]:
        async with few:
            return server.session_id, await last_use(server.address, server.port, server.token, timezone.now())

    answers = await asyncio.gather(*map(ask, servers))
    return [(session_id, at) for session_id, at in answers if at]


def _is_noted(session_id: str, now: float) -> bool:
    return now - _written.get(session_id, -COALESCE_SECONDS) < COALESCE_SECONDS


def _write(session_id: str) -> None:
    try:
        close_old_connections()
        note(session_id, timezone.now())
    except Error as error:
        _written.pop(session_id, None)
        logger.warning("session %s: its use could not be noted: %s", session_id, error)
    finally:
        close_old_connections()
