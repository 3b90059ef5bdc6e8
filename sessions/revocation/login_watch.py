"""Check during a websocket's life whether its login session or token is still valid, so that it ends with it.

A login ends by signing out, a new password, or a disabled account. Messages (`notify.login_changed`,
`notify.account_changed`) start a check at once; a check every CHECK_SECONDS covers messages that Redis lost. Only the
database decides.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from channels.auth import get_user
from channels.db import database_sync_to_async
from django.contrib.auth.models import AnonymousUser
from django.db import Error
from redis.exceptions import RedisError

from accounts.credentials.socket_tokens import SCOPE_KEY
from accounts.credentials.validity import user_of_token
from accounts.models import User
from proxy.authorization.signing import digest
from sessions import notify

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 15.0


class LoginWatch:
    """The login session, or the API token, of an authenticated Channels consumer."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._token = consumer.scope.get(SCOPE_KEY)
        self._login = None if self._token else consumer.scope["session"]
        self._check = asyncio.Event()
        self._groups = [notify.account_group(consumer.scope["user"].pk)]
        if self._login:
            self._groups.append(notify.login_group(digest(str(self._login.session_key))))

    async def join(self) -> None:
        """Subscribe to changes of the login, which call the consumer's `login_changed`; that is to call `check`."""
        try:
            for group in self._groups:
                await self._consumer.channel_layer.group_add(group, self._consumer.channel_name)
        except (RedisError, OSError) as error:
            logger.warning("a websocket checks its login by polling alone: %s", error)

    async def leave(self) -> None:
        """Unsubscribe."""
        try:
            for group in self._groups:
                await self._consumer.channel_layer.group_discard(group, self._consumer.channel_name)
        except (RedisError, OSError) as error:
            logger.info("a websocket could not leave the groups of its login: %s", error)

    def check(self) -> None:
        """Make `users` check now."""
        self._check.set()

    async def users(self) -> AsyncIterator[User | AnonymousUser]:
        """Yield the user of the login: now, after each `check`, and every CHECK_SECONDS; anonymous once it has ended.

        While the database is unavailable, nothing is yielded.
        """
        while True:
            self._check.clear()  # before the query: a change during it is checked again
            try:
                yield await self._user()
            except Error as error:
                logger.warning("could not check a login: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._check.wait()

    async def _user(self) -> User | AnonymousUser:
        if self._login is None:
            return await database_sync_to_async(user_of_token)(self._token) or AnonymousUser()
        login = self._login.__class__(self._login.session_key)  # without cached data
        found: User | AnonymousUser = await get_user({**self._consumer.scope, "session": login})
        return found
