"""The websocket of every page: changes of sessions, and what the user is told."""

from typing import Any

from channels.db import database_sync_to_async

from notifications import services
from notifications.announcements import GROUP
from sessions.consumers import SessionsConsumer


class LiveConsumer(SessionsConsumer):
    """Sends {"notices": {"unread", "pending"}} first and after changes, {"announcements": true} after theirs."""

    async def connect(self) -> None:
        """Join the groups of the user's notifications and of announcements."""
        await super().connect()
        if self.login is None:
            return
        for group in (services.group_of(self.scope["user"].pk), GROUP):
            await self.channel_layer.group_add(group, self.channel_name)
            self.joined.append(group)
        await self.notices_changed({})

    async def notices_changed(self, message: dict[str, Any]) -> None:
        """Send how many are unread, and not shown yet; called by a message of the channel layer."""
        counts = await database_sync_to_async(services.counts_of)(self.scope["user"].pk)
        await self.send_json({"notices": counts})

    async def announcements_changed(self, message: dict[str, Any]) -> None:
        """Have the page fetch the announcements; called by a message of the channel layer."""
        await self.send_json({"announcements": True})
