"""Gives a new deployment its port, where apps are told apart by port, in the transaction that makes it."""

from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver

from deployments.models import Deployment
from endpoints.routing import ports


@receiver(post_save, sender=Deployment)
def _deployment_is_made(instance: Deployment, *, created: bool, **kwargs: Any) -> None:
    if created:
        ports.assign_to_deployment(instance)
