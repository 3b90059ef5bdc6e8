"""The WebSocket of an open list: it is sent what has changed, instead of fetching the page again."""

import asyncio
import json
import re
from typing import Any, Final

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import Error

from accounts.models import User
from notifications.page.consumers import LiveConsumer
from pages.session_list import columns
from pages.session_list.list_query import PAGE_SIZES, ListQuery
from pages.session_list.live.feed import Audience, ListView, feed
from pages.session_list.occupancy import change_version, version_text
from resources.models import ResourceGroup
from sessions.models import SESSION_ID, Session
from sessions.notify import ALL, SUPERADMINS, user_group

FETCH_ALL: Final = json.dumps({"session": ALL})


class SessionListConsumer(LiveConsumer):
    """Sends rows, counts, use and resources, once its browser has said what it shows: {"watch": {...}}."""

    view: ListView | None = None

    def watched_groups(self, user: User) -> list[str]:
        """Return the groups of the sessions that the list shows: the user's own, or for a superadmin all."""
        return [SUPERADMINS, user_group(user.pk)] if user.is_superuser else [user_group(user.pk)]

    async def disconnect(self, code: int) -> None:
        """Leave the feed, too."""
        feed().leave(self)
        await super().disconnect(code)

    async def receive_json(self, content: dict[str, Any], **kwargs: Any) -> None:
        """Note what the browser shows; have it fetch the list again if that has changed since it was rendered."""
        await super().receive_json(content, **kwargs)
        watch = content.get("watch")
        if not isinstance(watch, dict) or self.login is None:
            return
        self.view, version = await database_sync_to_async(_view_of)(self.scope["user"], watch)
        feed().join(self)
        if watch.get("version") not in (None, version):
            await self.push(FETCH_ALL)

    async def push(self, text: str) -> None:
        """Send a message to the browser."""
        await self.send(text_data=text)

    async def _flush(self) -> None:
        while self.changed:  # including those that arrive meanwhile
            changed, self.changed = self.changed, set()
            await self.push(await self._message(changed))

    async def _message(self, changed: set[str]) -> str:
        if self.view is None or ALL in changed:
            await asyncio.sleep(0)
            return FETCH_ALL
        try:
            return await feed().changes(changed, self.view.audience)
        except Error:
            return FETCH_ALL  # the page says so itself if the database is away for longer


def _view_of(user: User, watch: dict[str, Any]) -> tuple[ListView, str]:
    """Return what the browser shows, as far as the user may see it, and the version of the data; four queries."""
    query = ListQuery.from_parameters({"tab": str(watch.get("tab", ""))})
    known = str(watch.get("language", ""))
    language = known if known in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE
    given = watch.get("ids")
    asked = given[: max(PAGE_SIZES)] if isinstance(given, list) else []
    ids = [each for each in asked if isinstance(each, str) and re.fullmatch(SESSION_ID, each)]
    group = watch.get("group")
    groups = (
        ResourceGroup.objects.usable_by(user).filter(pk=group)
        if isinstance(group, int)
        else ResourceGroup.objects.none()
    )
    shown = columns.shown(user, query.tab, columns.chosen_by(user))
    view = ListView(
        audience=Audience(user_id=user.pk, sees_all=user.is_superuser, columns=shown, language=language),
        group_id=groups.values_list("pk", flat=True).first(),
        session_ids=tuple(Session.objects.operable_by(user).filter(pk__in=ids).values_list("pk", flat=True)),
    )
    return view, version_text(change_version())
