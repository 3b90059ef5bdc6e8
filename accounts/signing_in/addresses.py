"""The address of each account as django-allauth knows it: exactly one, which counts as verified.

Whoever makes the account has verified it: an administrator, the link of an invitation, or the identity provider. An
address that an administrator has replaced must not get links for new passwords any more, so its row goes at once.
"""

from collections.abc import Collection
from typing import Any

from allauth.account.models import EmailAddress
from django.db.models.signals import post_save
from django.dispatch import receiver

from accounts.models import User


@receiver(post_save, sender=User)
def _follow(instance: User, created: bool, update_fields: Collection[str] | None, **kwargs: Any) -> None:
    row = {"verified": True, "primary": True}
    if created:  # so that there is none to look for
        EmailAddress.objects.create(user=instance, email=instance.email, **row)
    elif update_fields is None or "email" in update_fields:
        EmailAddress.objects.filter(user=instance).exclude(email=instance.email).delete()
        EmailAddress.objects.update_or_create(user=instance, email=instance.email, defaults=row)
