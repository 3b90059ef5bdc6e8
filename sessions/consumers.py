"""The WebSocket that tells a browser which sessions to fetch again. It carries ids only; pages decide what to show."""

import asyncio
import contextlib
from typing import Any, Final

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from sessions.notify import SUPERADMINS, user_group

SIGNED_OUT: Final = 4401  # close code: sign in first
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
        user = self.scope["user"]
        if not user.is_authenticated:
            await self.accept()  # a browser sees the code only of an accepted socket
            await self.close(SIGNED_OUT)
            return
        for group in [user_group(user.pk)] + [SUPERADMINS] * user.is_superuser:
            await self.channel_layer.group_add(group, self.channel_name)
            self.joined.append(group)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        """Leave the groups and drop what was not yet told."""
        for group in self.joined:
            await self.channel_layer.group_discard(group, self.channel_name)
        if self.flushing:
            self.flushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.flushing

    async def session_changed(self, message: dict[str, Any]) -> None:
        """Collect the change; one flush tells all of the span."""
        self.changed.add(message["session"])
        if self.flushing is None or self.flushing.done():
            self.flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        while self.changed:  # also what comes while the others are being told
            await asyncio.sleep(COALESCE_SECONDS)
            told, self.changed = self.changed, set()
            for session in sorted(told):
                await self.send_json({"session": session})
