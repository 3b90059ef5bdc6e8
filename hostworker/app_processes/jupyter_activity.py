"""Polls the Jupyter servers of this host's sessions for their last use: kernels also work while nobody looks."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from django.db.models import F

from hostworker.app_processes.jupyter import TOKEN_VARIABLE, last_use
from resources import clock
from resources.models import Host
from sessions.access import activity
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState

POLL_INTERVAL_SECONDS: Final = 60.0
MAX_CONCURRENT_REQUESTS: Final = 32


class JupyterServer(NamedTuple):
    """A Jupyter server of a running session."""

    session_id: str
    address: str
    port: int
    token: str


class JupyterActivity:
    """Records when the Jupyter servers of one host's sessions were last used."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def poll(self) -> None:
        """Ask each server once and record its last use; one that does not respond is skipped."""
        for session_id, at in asyncio.run(_last_uses(self._servers())):
            activity.record(session_id, at)

    def _servers(self) -> set[JupyterServer]:
        """Return the servers, each once although several apps may be pages of it."""
        ready = Endpoint.objects.filter(
            state=EndpointState.READY,
            session__status=Status.RUNNING,
            session__host=self._host,
            session__address__isnull=False,
            session__image__apps__name=F("app"),
            session__image__apps__token_variable=TOKEN_VARIABLE,
        )
        rows = ready.values_list("session_id", "session__address", "port", "token")
        return {JupyterServer(session_id, str(address), port, token) for session_id, address, port, token in rows}


async def _last_uses(servers: Iterable[JupyterServer]) -> list[tuple[str, datetime]]:
    """Return (session, last use) of the servers that say so."""
    slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    async def ask(server: JupyterServer) -> tuple[str, datetime | None]:
        async with slots:
            return server.session_id, await last_use(server.address, server.port, server.token, clock.now())

    responses = await asyncio.gather(*map(ask, servers))
    return [(session_id, at) for session_id, at in responses if at]
