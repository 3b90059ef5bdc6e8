"""Revokes the cookies of apps when a login session ends, and when a user is deleted or loses rights."""

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session as LoginSession
from django.db.models.signals import post_delete, pre_delete
from django.dispatch import receiver
from django.utils import timezone

from accounts.models import User
from accounts.signing_in.access_loss import AccessLoss, access_ended
from endpoints.routing import revocations
from sessions.models import ShareLink


@receiver(post_delete, sender=LoginSession)
def _login_session_has_ended(instance: LoginSession, **kwargs: Any) -> None:
    """Revoke: sign-out, sign-in as another user, a changed password and administrators delete this row."""
    is_alive = instance.expire_date > timezone.now()  # expired rows are deleted in bulk
    if is_alive and SESSION_KEY in instance.get_decoded():  # anonymous users have sessions too
        revocations.revoke_login_session(instance.session_key)


@receiver(access_ended)
def _access_has_ended(user: User, losses: frozenset[AccessLoss], **kwargs: Any) -> None:
    revocations.revoke_user(user)
    if losses & {AccessLoss.RESET, AccessLoss.DISABLED}:
        ShareLink.objects.filter(endpoint__session__owner=user, revoked_at=None).update(revoked_at=timezone.now())


@receiver(pre_delete, sender=User)
def _user_is_deleted(instance: User, **kwargs: Any) -> None:
    revocations.revoke_logins_of(instance)
