"""Records what was done with deployments; tells proxies, open pages and the reconciliation, once it is committed."""

from typing import Final

from accounts.models import User
from deployments.models import Deployment, DeploymentEvent
from resources import clock
from sessions import notify

RECONCILE: Final = "deployments.tasks.reconcile"
MAX_LENGTH: Final = 300


def record(deployment: Deployment, what: str, actor: User | None = None) -> None:
    """Add an event to the deployment's list, in the caller's transaction."""
    DeploymentEvent.objects.create(deployment=deployment, at=clock.now(), what=what[:MAX_LENGTH], actor=actor)


def group_of(deployment_id: str) -> str:
    """Return the channel-layer group of the pages that show the deployment."""
    return f"deployment.{deployment_id}"


def access_changed(deployment_id: str) -> None:
    """After the commit, return once every proxy knows the deployment's tokens: who is given one may use it at once."""
    notify.tell_proxies({"deployment": deployment_id})
    _show(deployment_id)


def changed(deployment_id: str, **more: object) -> None:
    """After the commit, have every proxy read the deployment again, told more of it perhaps, and have it reconciled."""
    reconciled(deployment_id, **more)
    notify.send_to_scheduler(RECONCILE)


def reconciled(deployment_id: str, **more: object) -> None:
    """After the commit, have every proxy and page read the deployment again."""
    notify.publish_to_proxies({"deployment": deployment_id, **more})
    _show(deployment_id)


def _show(deployment_id: str) -> None:
    notify.tell_group(group_of(deployment_id), "deployment.changed")
