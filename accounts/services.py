"""What people do with their SSH keys: the rules for the page and the API."""

import logging
from typing import Final

from django.db import IntegrityError, transaction

from accounts.models import SshKey, User
from accounts.public_keys import InvalidPublicKeyError, public_key_from

logger = logging.getLogger(__name__)

MAX_KEYS: Final = 50  # of one user
TITLE_LENGTH: Final = 64


def add_ssh_key(owner: User, pasted: str, title: str = "") -> SshKey:
    """Store the pasted public key; its comment is the title where none is given. Raises InvalidPublicKeyError."""
    key = public_key_from(pasted)
    if owner.ssh_keys.count() >= MAX_KEYS:
        raise InvalidPublicKeyError(f"You have {MAX_KEYS} keys, which is the most; delete one first.")
    title = " ".join((title or key.comment or key.fingerprint).replace("\0", "").split())[:TITLE_LENGTH]
    try:
        with transaction.atomic():
            made = SshKey.objects.create(owner=owner, title=title, text=key.text, fingerprint=key.fingerprint)
    except IntegrityError as error:
        # Whose it is stays unsaid: a public key is public, and anybody may ask.
        mine = owner.ssh_keys.filter(fingerprint=key.fingerprint).first()
        where = f"you have added this key already, as {mine.title!r}" if mine else "this key belongs to another account"
        raise InvalidPublicKeyError(f"One key is one person's, and {where}.") from error
    logger.info("user %s: added SSH key %s", owner.pk, made.fingerprint)
    return made


def delete_ssh_key(key: SshKey) -> None:
    """Forget the key; connections that it opened are closed within seconds."""
    key.delete()
    logger.info("user %s: deleted SSH key %s", key.owner_id, key.fingerprint)
