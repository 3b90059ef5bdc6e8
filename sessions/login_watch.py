"""Ends a websocket with the log-in that opened it: signed out, disabled, given a new password, or with fewer rights.

A message (`notify.login_changed`, `notify.account_changed`) says that it is time to look; without one, a look now and
then makes up for what Redis has lost. The database alone decides.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from channels.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.db import Error
from redis.exceptions import RedisError

from accounts.models import User
from proxy.signing import digest
from sessions import notify

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0


class LoginWatch:
    """What an authenticated consumer of Channels knows of its own log-in."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._login = consumer.scope["session"]
        self._news = asyncio.Event()
        self._groups = (
            notify.login_group(digest(str(self._login.session_key))),
            notify.account_group(consumer.scope["user"].pk),
        )

    async def join(self) -> None:
        """Have the consumer's `login_changed` called when there is something to look at; it is to call `look`."""
        try:
            for group in self._groups:
                await self._consumer.channel_layer.group_add(group, self._consumer.channel_name)
        except (RedisError, OSError) as error:
            logger.warning("a websocket hears of its log-in by looking alone: %s", error)

    async def leave(self) -> None:
        """Hear of nothing more."""
        try:
            for group in self._groups:
                await self._consumer.channel_layer.group_discard(group, self._consumer.channel_name)
        except (RedisError, OSError) as error:
            logger.info("a websocket could not leave the groups of its log-in: %s", error)

    def look(self) -> None:
        """Have `users` look again now."""
        self._news.set()

    async def users(self) -> AsyncIterator[User | AnonymousUser]:
        """Yield who the log-in stands for: now, at each `look`, and every LOOK_SECONDS.

        While the database is away nobody can tell, and nothing is yielded.
        """
        while True:
            self._news.clear()  # before looking: what comes meanwhile is looked at again
            try:
                yield await self._user()
            except Error as error:
                logger.warning("could not look who is signed in: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()

    async def _user(self) -> User | AnonymousUser:
        login = self._login.__class__(self._login.session_key)  # read anew
        found: User | AnonymousUser = await get_user({**self._consumer.scope, "session": login})
        return found
