"""The output of all replicas of a deployment as one log, each line with the replica that wrote it.

Of replicas that have ended, the last ones are in it for a while, since what ended them stands there.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from operator import attrgetter
from typing import Final

from channels.db import database_sync_to_async
from django.db import Error
from django.utils.translation import gettext as _

from deployments.models import Deployment
from resources import clock
from restapi.streams import ServerSentEvent
from sessions.errors import RejectedError
from sessions.following import logs, merged_logs
from sessions.following.merged_logs import MergedLog, Places
from sessions.lifecycle import FINAL
from sessions.models import SESSION_ID, Session

MAX_REPLICAS: Final = 64  # that are read or followed at once, the oldest first
MAX_ENDED: Final = 8  # the last that have ended
ENDED_WITHIN: Final = timedelta(hours=1)
LOOK_SECONDS: Final = 2.0  # in which a new replica is found

name_of: Final = attrgetter("name")


def chosen(deployment: Deployment, replica: str = "") -> list[Session]:
    """Return the replicas that the log is of, or the one of this name or id. Raises RejectedError for `replica`."""
    rows = Session.objects.filter(replica__deployment=deployment).select_related("host").order_by("created_at", "pk")
    if replica:
        found = list(rows.filter(pk=replica) or rows.filter(name=replica))
        if not found:
            raise RejectedError({"replica": _("This deployment has no replica of this name.")})
        return found
    ended = rows.filter(status__in=FINAL, ended_at__gt=clock.now() - ENDED_WITHIN).order_by("-ended_at")
    return [*reversed(ended[:MAX_ENDED]), *rows.exclude(status__in=FINAL)[:MAX_REPLICAS]]


def read(deployment: Deployment, tail: int, replica: str = "") -> str:
    """Return the last `tail` lines, in the order of time. Raises RejectedError for `replica`."""
    return logs.read_together(chosen(deployment, replica), tail, name_of)


def places_of(text: str) -> Places:
    """Return the places, by the ids of replicas, that the id of an event tells. Raises ValueError."""
    return merged_logs.places_of(text, lambda key: re.fullmatch(SESSION_ID, key) is not None, MAX_REPLICAS + MAX_ENDED)


class ReplicaLogFollower:
    """The output of the replicas, also of those that are still to come, until the deployment and they have ended."""

    def __init__(self, deployment: Deployment, replica: str, resumed: Places, tail: int) -> None:
        """Raises RejectedError for `replica`, whose output alone is sent until it has ended."""
        self._deployment = deployment
        self._replica = replica
        self._first = chosen(deployment, replica)
        self._log = MergedLog(name_of, resumed, tail)

    async def events(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield `output` with lines, and `end` with the state of the deployment."""
        self._add(self._first)
        if not self._replica:
            self._log.run("", self._look())
        async with aclosing(self._log.outputs()) as outputs:
            async for event in outputs:
                yield event
        state = await database_sync_to_async(self._state)()
        yield ServerSentEvent(name="end", data={"state": state})

    async def _look(self) -> None:
        """Add the replicas that come, until the deployment has ended."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                state = await database_sync_to_async(self._state)()
                found = await database_sync_to_async(chosen)(self._deployment)
            except Error:  # the database is away; it is asked again
                continue
            self._add(found)
            if state in ("", "ENDED"):
                return

    def _add(self, sessions: list[Session]) -> None:
        for session in sessions:
            self._log.add(session.pk, session)
        self._log.forget([session.pk for session in sessions])

    def _state(self) -> str:
        """Return its state, "" if it is gone."""
        found = Deployment.objects.filter(pk=self._deployment.pk).values_list("state", flat=True).first()
        return found or ""
