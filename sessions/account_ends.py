"""Cancels what waits for an account that was disabled; what runs is left to administrators."""

from typing import Any

from django.dispatch import receiver

from accounts.access_loss import AccessLoss, access_ended
from accounts.models import User
from sessions import services
from sessions.lifecycle import IN_CONTAINER, Reason
from sessions.models import Session


@receiver(access_ended)
def _cancel_waiting(user: User, losses: frozenset[AccessLoss], **kwargs: Any) -> None:
    if AccessLoss.DISABLED not in losses:
        return
    for session in Session.objects.live().filter(owner=user).exclude(status__in=IN_CONTAINER):
        services.end(session, Reason.ADMIN_REQUEST, "The account was disabled.")
