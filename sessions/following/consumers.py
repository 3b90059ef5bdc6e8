"""The WebSocket that sends a browser the ids of changed sessions, which its page then fetches again."""

import asyncio
import json
import logging
from typing import Any, Final

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.db import Error
from redis.exceptions import RedisError

from accounts.models import Project, User
from sessions.notify import SUPERADMINS, project_group, user_group
from sessions.revocation.login_watch import LoginWatch

logger = logging.getLogger(__name__)

SIGNED_OUT: Final = 4401  # close code: sign in first
NOT_UNDERSTOOD: Final = 1003  # close code: not JSON
RECONNECT: Final = 1012  # close code: connect again, with the rights of now
COALESCE_SECONDS: Final = 0.05  # changes of one session within this time are sent once


class NotFoundConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """Refuses handshakes for unknown paths with 403."""

    async def connect(self) -> None:
        """Refuse the handshake."""
        await self.close()


class SessionsConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """Sends {"session": id} for each change of a session that this user may see."""

    groups: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[str] = set()
        self.flushing: asyncio.Task[None] | None = None
        self.watched: list[str] = []
        self.joined: list[str] = []
        self.login: LoginWatch | None = None
        self.watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve the socket; release everything however it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._clean_up()

    async def connect(self) -> None:
        """Join the groups of the sessions that the user may see; close with 4401 where nobody is signed in."""
        user = self.scope["user"]
        if not user.is_authenticated:
            await self.accept()  # a browser sees the code only of an accepted socket
            await self.close(SIGNED_OUT)
            return
        self.watched = await database_sync_to_async(self.watched_groups)(user)
        for group in (*self.watched, *self.further_groups(user)):
            await self.channel_layer.group_add(group, self.channel_name)
            self.joined.append(group)
        self.login = LoginWatch(self)
        await self.login.join()
        await self.accept()
        self.watching = asyncio.create_task(self._watch(self.login))

    def watched_groups(self, user: User) -> list[str]:
        """Return the channel-layer groups of the sessions that the user may see; one query at most."""
        if user.is_superuser:
            return [user_group(user.pk), SUPERADMINS]
        managed = Project.objects.managed_by(user).order_by("pk").values_list("pk", flat=True)
        return [user_group(user.pk), *map(project_group, managed)]

    def further_groups(self, user: User) -> list[str]:
        """Return the groups of what else the page is told of, whatever sessions its user may see."""
        return []

    async def _clean_up(self) -> None:
        """End the tasks and leave the groups; changes that were not sent yet are dropped."""
        tasks = [task for task in (self.flushing, self.watching) if task]
        for task in tasks:
            task.cancel()
        for problem in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(problem, Exception) and not isinstance(problem, OSError):  # else the browser has left
                logger.error("a socket of changed sessions failed", exc_info=problem)
        try:
            for group in self.joined:
                await self.channel_layer.group_discard(group, self.channel_name)
        except (RedisError, OSError) as error:
            logger.info("a socket of changed sessions could not leave its groups: %s", error)
        if self.login:
            await self.login.leave()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Read a message of the browser; close where it is none."""
        try:
            content = json.loads(text_data or "")
        except (ValueError, RecursionError):
            await self.close(NOT_UNDERSTOOD)
            return
        if isinstance(content, dict):
            await self.receive_json(content)

    async def receive_json(self, content: dict[str, Any], **kwargs: Any) -> None:
        """Answer {"ping": number}, by which the browser sees within seconds that it is connected."""
        if isinstance(number := content.get("ping"), int):
            await self.send_json({"pong": number})

    async def login_changed(self, message: dict[str, Any]) -> None:
        """Check the login; called by a message of the channel layer (sessions.notify)."""
        if self.login:
            self.login.check()

    async def session_changed(self, message: dict[str, Any]) -> None:
        """Collect the change, to be sent within COALESCE_SECONDS; called by a message of the channel layer."""
        self.changed.add(message["session"])
        if self.flushing is None or self.flushing.done():
            self.flushing = asyncio.create_task(self._flush())

    async def _watch(self, login: LoginWatch) -> None:
        """Close once the login has ended, or once the user may see the sessions of others than before."""
        async for user in login.users():
            if not isinstance(user, User):
                await self.close(SIGNED_OUT)
                return
            try:
                watched = await database_sync_to_async(self.watched_groups)(user)
            except Error as error:
                logger.warning("could not check which sessions a user may see: %s", error)
                continue
            if watched != self.watched:
                await self.close(RECONNECT)
                return

    async def _flush(self) -> None:
        while self.changed:  # including those that arrive during a flush
            await asyncio.sleep(COALESCE_SECONDS)
            changed, self.changed = self.changed, set()
            for session in sorted(changed):
                await self.send_json({"session": session})
