"""The WebSocket that tells a browser which sessions to fetch again. It carries ids only; pages decide what to show."""

import asyncio
import contextlib
from typing import Any, Final

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from sessions.login_watch import LoginWatch
from sessions.notify import SUPERADMINS, user_group

SIGNED_OUT: Final = 4401  # close code: sign in first
COME_AGAIN: Final = 1012  # close code: connect again, to be told what there is to tell now
COALESCE_SECONDS: Final = 0.05  # changes of one session within this span are told once


class NowhereConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """Refuses, as 403, what has no address."""

    async def connect(self) -> None:
        """Close before anything is accepted."""
        await self.close()


class SessionsConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """Sends {"session": id} for each change of a session that this user may see."""

    groups: tuple[str, ...] = ()

    async def connect(self) -> None:
        """Join the user's group, and the superadmins' where it applies; a stranger is closed with 4401."""
        self.changed: set[str] = set()
        self.flushing: asyncio.Task[None] | None = None
        self.joined: list[str] = []
        self.login: LoginWatch | None = None
        self.watching: asyncio.Task[None] | None = None
        user = self.scope["user"]
        if not user.is_authenticated:
            await self.accept()  # a browser sees the code only of an accepted socket
            await self.close(SIGNED_OUT)
            return
        for group in [user_group(user.pk)] + [SUPERADMINS] * user.is_superuser:
            await self.channel_layer.group_add(group, self.channel_name)
            self.joined.append(group)
        self.login = LoginWatch(self)
        await self.login.join()
        await self.accept()
        self.watching = asyncio.create_task(self._watch(self.login))

    async def disconnect(self, code: int) -> None:
        """Leave the groups and drop what was not yet told."""
        for group in self.joined:
            await self.channel_layer.group_discard(group, self.channel_name)
        if self.login:
            await self.login.leave()
        for task in filter(None, (self.flushing, self.watching)):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def login_changed(self, message: dict[str, Any]) -> None:
        """Look who is signed in; a message of the channel layer (sessions.notify)."""
        if self.login:
            self.login.look()

    async def session_changed(self, message: dict[str, Any]) -> None:
        """Collect the change; one flush tells all of the span."""
        self.changed.add(message["session"])
        if self.flushing is None or self.flushing.done():
            self.flushing = asyncio.create_task(self._flush())

    async def _watch(self, login: LoginWatch) -> None:
        """Close once the log-in is over, or hears of more than it may."""
        was_superuser = self.scope["user"].is_superuser
        async for user in login.users():
            if not user.is_authenticated or user.is_superuser != was_superuser:
                await self.close(COME_AGAIN if user.is_authenticated else SIGNED_OUT)
                return

    async def _flush(self) -> None:
        while self.changed:  # also what comes while the others are being told
            await asyncio.sleep(COALESCE_SECONDS)
            told, self.changed = self.changed, set()
            for session in sorted(told):
                await self.send_json({"session": session})
