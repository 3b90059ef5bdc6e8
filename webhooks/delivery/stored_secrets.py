"""Secrets of webhooks, encrypted in the database by Fernet with a key that is derived from SECRET_KEY.

They are needed in plain text for every signature, so a digest would not do. Hosts have no SECRET_KEY.
"""

from datetime import timedelta
from typing import Final

from cryptography.fernet import InvalidToken
from django.db import transaction

from accounts.encryption import cipher_for
from resources import clock
from webhooks.models import Webhook
from webhooks.signatures import new_secret

OLD_SECRET_LIFETIME: Final = timedelta(hours=24)  # after a rotation, messages are signed with both secrets for so long
_PURPOSE: Final = "gpuplatform webhook secret"


class UnreadableSecretError(Exception):
    """The secret was stored under a SECRET_KEY that is known no more; rotating it makes another."""


def set_new_secret(webhook: Webhook) -> str:
    """Give the webhook, which the caller saves, a new secret and return it; one it had is valid for a day more."""
    secret = new_secret()
    if webhook.encrypted_secret:
        webhook.encrypted_old_secret = webhook.encrypted_secret
        webhook.old_secret_until = clock.now() + OLD_SECRET_LIFETIME
    webhook.encrypted_secret = cipher_for(_PURPOSE).encrypt(secret.encode())
    return secret


def secrets_of(webhook: Webhook) -> list[str]:
    """Return the secrets with which messages are signed now, the newest first. Raises UnreadableSecretError."""
    stored = [webhook.encrypted_secret]
    if webhook.old_secret_until is not None and webhook.old_secret_until > clock.now():
        stored.append(webhook.encrypted_old_secret)
    try:
        return [cipher_for(_PURPOSE).decrypt(bytes(each)).decode() for each in stored]
    except InvalidToken:
        raise UnreadableSecretError(
            "The secret was stored under another SECRET_KEY. Rotate it, or have the old key put into "
            "SECRET_KEY_FALLBACKS."
        ) from None


@transaction.atomic
def rekey() -> int:
    """Encrypt every stored secret with the current SECRET_KEY and return of how many webhooks.

    One that no key decrypts stays as it is: its owner rotates it.
    """
    count = 0
    for webhook in Webhook.objects.select_for_update().order_by("pk"):
        try:
            webhook.encrypted_secret = _encrypted_again(bytes(webhook.encrypted_secret))
            webhook.encrypted_old_secret = _encrypted_again(bytes(webhook.encrypted_old_secret))
        except InvalidToken:
            continue
        webhook.save(update_fields=("encrypted_secret", "encrypted_old_secret"))
        count += 1
    return count


def _encrypted_again(stored: bytes) -> bytes:
    return cipher_for(_PURPOSE).rotate(stored) if stored else b""
