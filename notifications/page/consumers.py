"""The websocket of every page: changes of sessions, and what the user is told."""

from typing import Any

from channels.db import database_sync_to_async

from accounts.models import User
from notifications import services
from notifications.announcements.services import GROUP
from sessions.following.consumers import SessionsConsumer


class LiveConsumer(SessionsConsumer):
    """Sends {"notices": {"unread", "pending"}} first and after changes, {"announcements": true} after theirs."""

    def further_groups(self, user: User) -> list[str]:
        """Return the groups of the user's notifications and of announcements."""
        return [services.group_of(user.pk), GROUP]

    async def connect(self) -> None:
        """Tell of the notifications at first, too."""
        await super().connect()
        if self.login is not None:
            await self.notices_changed({})

    async def notices_changed(self, message: dict[str, Any]) -> None:
        """Send how many are unread, and not shown yet; called by a message of the channel layer."""
        counts = await database_sync_to_async(services.counts_of)(self.scope["user"].pk)
        await self.send_json({"notices": counts})

    async def announcements_changed(self, message: dict[str, Any]) -> None:
        """Have the page fetch the announcements; called by a message of the channel layer."""
        await self.send_json({"announcements": True})
