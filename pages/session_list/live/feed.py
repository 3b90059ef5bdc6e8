"""What open pages of the list are sent: changed rows, live use, and resources. Read and rendered once per process.

A change concerns every socket of its owner and of every superadmin. All that ask for it within COALESCE_SECONDS share
one reading, one rendering and one encoded message, so that the cost hardly grows with the number of open browsers.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from django.db import Error
from django.utils import translation

from pages.session_list.list_query import counts_by_owner
from pages.session_list.live.live_use import live_use
from pages.session_list.live.rendering import render_row
from pages.session_list.live.resources_feed import resource_messages
from pages.session_list.occupancy import Version, change_version
from pages.session_list.row_queries import load_rows, with_help

logger = logging.getLogger(__name__)

COALESCE_SECONDS: Final = 0.1
RESOURCES_SECONDS: Final = 2.0
USE_SECONDS: Final = 10.0  # as often as hosts record it


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Whose changes a socket is sent, and how they are shown: sockets with an equal one get the same message."""

    user_id: int
    sees_all: bool  # everybody's, as superadmins do
    columns: tuple[str, ...]
    language: str

    @property
    def owner_id(self) -> int | None:
        """Whose sessions it counts; None for everybody's."""
        return None if self.sees_all else self.user_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ListView:
    """What an open page shows."""

    audience: Audience
    group_id: int | None
    session_ids: tuple[str, ...]


class Subscriber(Protocol):
    """A socket of an open page."""

    view: ListView | None

    async def push(self, text: str) -> None:
        """Send a message to the browser."""


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Changes that are read and rendered together."""

    done: "asyncio.Future[Mapping[Audience, str]]"
    changed: dict[Audience, set[str]] = field(default_factory=dict)


class ListFeed:
    """The open pages of one event loop."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._batch: _Batch | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._periodic: list[asyncio.Task[None]] = []
        self._version: Version | None = None
        self._sent: dict[Subscriber, str] = {}

    def join(self, subscriber: Subscriber) -> None:
        """Send to this socket from now on; again, after its view has changed."""
        self._subscribers.add(subscriber)
        self._version = None  # the next look sends resources to who lacks them
        if not self._periodic:
            self._periodic = [
                asyncio.create_task(self._repeat(self._send_resources, RESOURCES_SECONDS)),
                asyncio.create_task(self._repeat(self._send_use, USE_SECONDS)),
            ]

    def leave(self, subscriber: Subscriber) -> None:
        """Send nothing more to this socket."""
        self._subscribers.discard(subscriber)
        self._sent.pop(subscriber, None)
        if not self._subscribers:
            for task in self._periodic:
                task.cancel()
            self._periodic = []

    async def changes(self, session_ids: Collection[str], audience: Audience) -> str:
        """Return the message about these changed sessions. Raises django.db.Error."""
        batch = self._batch
        if batch is None:
            batch = self._batch = _Batch(done=asyncio.get_running_loop().create_future())
            task = asyncio.create_task(self._complete(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        batch.changed.setdefault(audience, set()).update(session_ids)
        return (await asyncio.shield(batch.done))[audience]

    async def _complete(self, batch: _Batch) -> None:
        await asyncio.sleep(COALESCE_SECONDS)
        self._batch = None  # what changes from now on is read by the next one
        try:
            batch.done.set_result(await database_sync_to_async(change_messages)(batch.changed))
        except Exception as error:
            batch.done.set_exception(error)
            batch.done.exception()  # retrieved, even if every socket has gone

    async def _repeat(self, send: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await send()
            except Error as error:
                logger.warning("could not read what open pages show: %s", error)
            except Exception:
                logger.exception("could not send what open pages show")
            await asyncio.sleep(seconds)

    async def _send_use(self) -> None:
        views = {each: each.view for each in self._subscribers if each.view}
        wanted = sorted({pk for view in views.values() for pk in view.session_ids})
        if not wanted:
            return
        use = await database_sync_to_async(live_use)(wanted)
        for subscriber, view in views.items():
            if mine := {pk: use[pk] for pk in view.session_ids if pk in use}:
                await _push(subscriber, json.dumps({"use": mine}))

    async def _send_resources(self) -> None:
        version = await database_sync_to_async(change_version)()
        if version == self._version:
            return
        self._version = version
        views = {each: each.view for each in self._subscribers if each.view and each.view.group_id}
        wanted = {(view.audience.user_id, view.group_id or 0, view.audience.language) for view in views.values()}
        messages = await database_sync_to_async(resource_messages)(wanted)
        for subscriber, view in views.items():
            text = messages.get((view.audience.user_id, view.group_id or 0, view.audience.language))
            if text and self._sent.get(subscriber) != text:
                self._sent[subscriber] = text
                await _push(subscriber, text)


_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, ListFeed] = WeakKeyDictionary()


def feed() -> ListFeed:
    """Return the feed of the running event loop."""
    return _feeds.setdefault(asyncio.get_running_loop(), ListFeed())


def change_messages(changed: Mapping[Audience, Collection[str]]) -> dict[Audience, str]:
    """Return the message for each audience about the sessions that changed for it.

    Five queries, and a few more where sessions of owners that watch wait.
    """
    rows = {row.pk: row for row in load_rows(sorted({pk for ids in changed.values() for pk in ids}))}
    own = {row.pk: row for row in with_help(rows.values(), {audience.user_id for audience in changed})}
    counts = counts_by_owner({audience.owner_id for audience in changed})
    messages = {}
    for audience, ids in changed.items():
        with translation.override(audience.language):
            found = [
                {
                    "id": row.pk,
                    "tab": row.tab.value,
                    "status": row.status,
                    "created": row.created_ms,
                    "html": render_row(row, audience.columns, audience.user_id, is_superadmin=audience.sees_all),
                }
                for each in map(rows.get, sorted(ids))
                if each is not None and (row := own[each.pk] if each.owner_id == audience.user_id else each)
            ]
        message = {"rows": found, "counts": counts[audience.owner_id], "arrays": any(each not in rows for each in ids)}
        messages[audience] = json.dumps(message)
    return messages


async def _push(subscriber: Subscriber, text: str) -> None:
    with contextlib.suppress(Exception):  # it has gone; its consumer leaves by itself
        await subscriber.push(text)
