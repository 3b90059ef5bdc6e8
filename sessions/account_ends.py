"""Cancels what waits for an account that was disabled; what runs or is parked is left to administrators."""

from typing import Any

from django.dispatch import receiver

from accounts.access_loss import AccessLoss, access_ended
from accounts.models import User
from sessions import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session


@receiver(access_ended)
def _cancel_waiting(user: User, losses: frozenset[AccessLoss], **kwargs: Any) -> None:
    if AccessLoss.DISABLED not in losses:
        return
    waiting = Session.objects.filter(owner=user, status__in=(Status.PENDING, Status.SCHEDULED))
    for session in waiting:
        services.end(session, Reason.ADMIN_REQUEST, "The account was disabled.")
