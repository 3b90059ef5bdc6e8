"""Ends the access of those who leave a project to its deployments."""

from typing import Any

from django.db.models import F
from django.db.models.signals import post_delete
from django.dispatch import receiver

from accounts.models import Membership
from deployments import events
from deployments.models import Deployment, DeploymentToken
from resources import clock


@receiver(post_delete, sender=Membership)
def _end_access(instance: Membership, **kwargs: Any) -> None:
    """Void the cookies of the project's deployments, and the tokens with which the member tried them.

    Those who may still use one are given another in passing.
    """
    live = Deployment.objects.live().filter(project=instance.project_id)
    trials = DeploymentToken.objects.filter(is_trial=True, created_by=instance.user_id, deployment__in=live)
    trials.filter(revoked_at=None).update(revoked_at=clock.now())
    for pk in live.values_list("pk", flat=True):
        Deployment.objects.filter(pk=pk).update(epoch=F("epoch") + 1)
        events.changed(pk)
