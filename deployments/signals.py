"""Ends the access of those who leave a project to its deployments."""

from typing import Any

from django.db.models import F
from django.db.models.signals import post_delete
from django.dispatch import receiver

from accounts.models import Membership
from deployments import events
from deployments.models import Deployment


@receiver(post_delete, sender=Membership)
def _void_cookies(instance: Membership, **kwargs: Any) -> None:
    """Void the cookies of the project's deployments: those who may still use one are given another in passing."""
    live = Deployment.objects.live().filter(project=instance.project_id)
    for pk in live.values_list("pk", flat=True):
        Deployment.objects.filter(pk=pk).update(epoch=F("epoch") + 1)
        events.changed(pk)
