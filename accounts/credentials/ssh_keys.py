"""Operations on SSH keys, for pages, the API and the SSH server."""

import logging
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.credentials.public_keys import InvalidPublicKeyError, public_key_from
from accounts.models import SshHostKey, SshKey, User

logger = logging.getLogger(__name__)

MAX_KEYS: Final = 50  # of one user
TITLE_LENGTH: Final = 64


def add_ssh_key(owner: User, pasted: str, title: str = "") -> SshKey:
    """Store and return a public key; without `title`, its comment is the title. Raises InvalidPublicKeyError."""
    key = public_key_from(pasted)
    if owner.ssh_keys.count() >= MAX_KEYS:
        raise InvalidPublicKeyError(f"You can have at most {MAX_KEYS} keys; delete one first.")
    title = " ".join((title or key.comment or key.fingerprint).replace("\0", "").split())[:TITLE_LENGTH]
    try:
        with transaction.atomic():
            made = SshKey.objects.create(owner=owner, title=title, text=key.text, fingerprint=key.fingerprint)
    except IntegrityError as error:
        # The other owner is not named: public keys are public, so anybody could ask.
        mine = owner.ssh_keys.filter(fingerprint=key.fingerprint).first()
        message = f"You have already added this key, as {mine.title!r}." if mine else "Another account has this key."
        raise InvalidPublicKeyError(message) from error
    logger.info("user %s: added SSH key %s", owner.pk, made.fingerprint)
    return made


def delete_ssh_key(key: SshKey) -> None:
    """Delete the key; SSH connections that use it are closed within seconds."""
    key.delete()
    logger.info("user %s: deleted SSH key %s", key.owner_id, key.fingerprint)


def record_ssh_host_key(public_key: str) -> None:
    """Store the key of the platform's SSH servers, for users to recognize it; all servers share one."""
    key = public_key_from(public_key)
    known = {"text": key.text, "fingerprint": key.fingerprint, "recorded_at": timezone.now()}
    SshHostKey.objects.update_or_create(singleton=True, defaults=known)
