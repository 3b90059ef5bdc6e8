"""The WebSocket of a deployment's page: it hears of changes of the deployment, and of its owner's sessions."""

from typing import Any

from accounts.models import User
from deployments import events
from deployments.models import Deployment
from notifications.page.consumers import LiveConsumer
from sessions.notify import user_group


class DeploymentConsumer(LiveConsumer):
    """Sends {"session": id of the deployment} for each change of the deployment to users who may see it."""

    def watched_groups(self, user: User) -> list[str]:
        """Return the groups of the deployment and, for those who may change it, of its replicas; two queries."""
        pk = self.scope["url_route"]["kwargs"]["deployment_id"]
        seen = Deployment.objects.visible_to(user).filter(pk=pk)
        owners = Deployment.objects.operable_by(user).filter(pk=pk).values_list("owner_id", flat=True)
        return [*map(events.group_of, seen.values_list("pk", flat=True)), *map(user_group, owners)]

    async def deployment_changed(self, message: dict[str, Any]) -> None:
        """Have the page fetch itself again; called by a message of the channel layer (deployments.events)."""
        await self.session_changed({"session": self.scope["url_route"]["kwargs"]["deployment_id"]})
