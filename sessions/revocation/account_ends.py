"""Disabling accounts: what waits is cancelled, and what runs or is parked is ended where the administrator says so."""

from typing import Any, Final

from django.dispatch import receiver

from accounts import audit
from accounts.models import User
from accounts.signing_in.access_loss import AccessLoss, access_ended
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session

DISABLED: Final = "The account was disabled."


def disable(user: User, *, actor: User, ends_sessions: bool) -> None:
    """Disable the account, and end all its sessions, or those that wait alone. Safe to repeat."""
    with audit.act(actor, "disable", user):
        user.is_active = False
        user.save(update_fields=["is_active"])
        for session in Session.objects.live().filter(owner=user) if ends_sessions else ():
            with audit.act(actor, "end", session):
                services.end(session, Reason.ADMIN_REQUEST, DISABLED, actor=actor)


@receiver(access_ended)
def _cancel_waiting(user: User, losses: frozenset[AccessLoss], **kwargs: Any) -> None:
    if AccessLoss.DISABLED not in losses:
        return
    waiting = Session.objects.filter(owner=user, status__in=(Status.PENDING, Status.SCHEDULED))
    for session in waiting:
        services.end(session, Reason.ADMIN_REQUEST, DISABLED)
