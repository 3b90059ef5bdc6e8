"""Ends what an account can use when its password changes or it is disabled, and announces it to the packages above.

Login sessions that are not recorded end by Django's own means, since the hash of the password is part of them.
"""

import logging
from collections.abc import Collection
from enum import StrEnum
from typing import Any, Final

from allauth.account.signals import password_changed, password_reset
from allauth.socialaccount.models import SocialAccount
from axes.handlers.proxy import AxesProxyHandler
from django.db.models.signals import post_save, pre_save
from django.dispatch import Signal, receiver
from django.http import HttpRequest

from accounts.login_sessions import services as logins
from accounts.models import ApiToken, User
from accounts.second_factors import services as second_factors
from accounts.signing_in import lockout

logger = logging.getLogger(__name__)

RIGHTS: Final = ("password", "is_active", "is_superuser")
_LOSSES: Final = "_losses"  # on a user that is being saved


class AccessLoss(StrEnum):
    """Why an account's access has ended, at least in part."""

    RESET = "password was changed"
    DISABLED = "account was disabled"
    SUPERUSER = "superadmin's rights were withdrawn"


access_ended: Final = Signal()  # `user` and `losses`, in the transaction that saves the user


@receiver(pre_save, sender=User)
def _detect(instance: User, update_fields: Collection[str] | None, **kwargs: Any) -> None:
    if instance.pk is None or (update_fields is not None and not set(RIGHTS) & set(update_fields)):
        return
    if old := User.objects.filter(pk=instance.pk).only(*RIGHTS).first():
        vars(instance)[_LOSSES] = frozenset(_losses(old, instance))


@receiver(post_save, sender=User)
def _end_access(instance: User, **kwargs: Any) -> None:
    losses: frozenset[AccessLoss] = vars(instance).pop(_LOSSES, frozenset())
    if not losses:
        return
    if losses & {AccessLoss.RESET, AccessLoss.DISABLED}:
        tokens, _ = ApiToken.objects.filter(user=instance).delete()
        keys, _ = instance.ssh_keys.all().delete()
        identities, _ = SocialAccount.objects.filter(user=instance).delete()
        if AccessLoss.RESET in losses:
            second_factors.require_password(instance)
        logins.end_all(instance)
        ended = (tokens, keys, identities)
        logger.info("user %s: %s; %d tokens, %d SSH keys, %d identities", instance.pk, ", ".join(losses), *ended)
    access_ended.send(sender=User, user=instance, losses=losses)


@receiver(password_changed)
def _record_this_browser(request: HttpRequest, **kwargs: Any) -> None:
    """Record the login session in which the password was changed, which alone goes on."""
    logins.record(request)


@receiver(password_reset)
def _unlock(request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Forget failed sign-ins of an account whose owner has shown to read its mail."""
    AxesProxyHandler.reset_attempts(username=lockout.folded_username(request, {"username": user.email}))


def _losses(old: User, new: User) -> list[AccessLoss]:
    found = []
    # Django renews old hashes at a log-in, without the raw password on the object: that is no change.
    if old.password != new.password and getattr(new, "_password", None) is not None:
        found.append(AccessLoss.RESET)
    if old.is_active > new.is_active:
        found.append(AccessLoss.DISABLED)
    if old.is_superuser > new.is_superuser:
        found.append(AccessLoss.SUPERUSER)
    return found
