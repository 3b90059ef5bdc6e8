"""Secrets of second factors, encrypted in the database by Fernet with a key that is derived from SECRET_KEY."""

from typing import Any, Final

from allauth.mfa.models import Authenticator
from cryptography.fernet import InvalidToken
from django.db import transaction

from accounts.encryption import cipher_for

_PURPOSE: Final = "second factors"


class UnreadableFactorError(Exception):
    """The secret was stored under a SECRET_KEY that is known no more."""


def encrypted(text: str) -> str:
    """Return the secret as it is stored."""
    return cipher_for(_PURPOSE).encrypt(text.encode()).decode()


def decrypted(stored: str) -> str:
    """Return a stored secret. Raises UnreadableFactorError."""
    try:
        return cipher_for(_PURPOSE).decrypt(stored.encode()).decode()
    except InvalidToken:
        raise UnreadableFactorError from None


@transaction.atomic
def rekey() -> int:
    """Encrypt the secrets of authenticator apps and recovery codes with the current SECRET_KEY; return how many.

    One that no key decrypts stays as it is: its owner is given another factor, and others need not wait for that.
    """
    count = 0
    holders = Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN)  # a passkey has no secret here
    for factor in holders.select_for_update().order_by("pk"):
        try:
            data = {name: _encrypted_again(name, value) for name, value in factor.data.items()}
        except UnreadableFactorError:
            continue
        Authenticator.objects.filter(pk=factor.pk).update(data=data)
        count += 1
    return count


def _encrypted_again(name: str, value: Any) -> Any:
    return encrypted(decrypted(value)) if name in ("secret", "seed") else value
