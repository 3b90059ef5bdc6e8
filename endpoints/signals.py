"""Revokes the cookies of apps when a login session ends, and when a user is deleted or loses rights."""

from collections.abc import Collection
from typing import Any, Final

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session as LoginSession
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save
from django.dispatch import receiver
from django.utils import timezone

from accounts.models import User
from endpoints import revocations

RIGHTS: Final = ("password", "is_active", "is_superuser")
_LOSES: Final = "_loses_rights"  # on a user that is being saved


@receiver(post_delete, sender=LoginSession)
def _login_session_has_ended(instance: LoginSession, **kwargs: Any) -> None:
    """Revoke: sign-out, sign-in as another user, a changed password and administrators delete this row."""
    is_alive = instance.expire_date > timezone.now()  # expired rows are deleted in bulk
    if is_alive and SESSION_KEY in instance.get_decoded():  # anonymous users have sessions too
        revocations.revoke_login_session(instance.session_key)


@receiver(pre_save, sender=User)
def _detect_loss_of_rights(instance: User, update_fields: Collection[str] | None, **kwargs: Any) -> None:
    if update_fields is not None and not set(RIGHTS) & set(update_fields):
        return
    old = User.objects.filter(pk=instance.pk).only(*RIGHTS).first() if instance.pk else None
    lost = old and (old.is_active > instance.is_active or old.is_superuser > instance.is_superuser)
    vars(instance)[_LOSES] = bool(old and (lost or old.password != instance.password))


@receiver(post_save, sender=User)
def _user_was_saved(instance: User, **kwargs: Any) -> None:
    if vars(instance).pop(_LOSES, False):
        revocations.revoke_user(instance)


@receiver(pre_delete, sender=User)
def _user_is_deleted(instance: User, **kwargs: Any) -> None:
    revocations.revoke_logins_of(instance)
