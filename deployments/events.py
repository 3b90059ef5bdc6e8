"""Records what was done with deployments, and tells proxies and the reconciliation of it, once it is committed."""

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


def access_changed(deployment_id: str) -> None:
    """After the commit, return once every proxy knows the deployment's tokens: who is given one may use it at once."""
    notify.tell_proxies({"deployment": deployment_id})


def changed(deployment_id: str) -> None:
    """After the commit, have every proxy read the deployment again, and have it reconciled."""
    notify.publish_to_proxies({"deployment": deployment_id})
    notify.send_to_scheduler(RECONCILE)
