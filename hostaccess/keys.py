"""The key of each host, known to the platform and this host alone, and the keys that all hosts share.

The platform stores a host's key encrypted under SECRET_KEY. A host has its own in COMPUTE_HOST_KEY and no SECRET_KEY.
"""

from functools import lru_cache
from typing import Final

from cryptography.fernet import InvalidToken, MultiFernet
from django.conf import settings
from django.db import transaction
from django.utils.crypto import salted_hmac

from accounts.encryption import cipher_for
from hostaccess.models import HostAccess
from proxy.authorization.signing import Keys

_PURPOSE: Final = "gpuplatform host key"


class HostKeyError(Exception):
    """The stored key of a host cannot be decrypted; the message says what to do."""


def key_of(host_name: str) -> str:
    """Return the key of this host; at most one query.

    A host that never joined, such as the platform's own machine, has one that is derived from SECRET_KEY.
    Raises HostKeyError.
    """
    if settings.COMPUTE_HOST_KEY:
        return str(settings.COMPUTE_HOST_KEY) if host_name == settings.COMPUTE_HOST_NAME else ""
    stored = HostAccess.objects.filter(name=host_name).values_list("encrypted_key", flat=True).first()
    return decrypted(host_name, bytes(stored or b""))


def decrypted(host_name: str, stored: bytes) -> str:
    """Return the key of a host by what is stored of it, b"" for nothing. Raises HostKeyError."""
    return _decrypted(bytes(stored), cipher_for(_PURPOSE)) if stored else _derived(host_name)


def encrypted(key: str) -> bytes:
    """Return what to store of a key."""
    return cipher_for(_PURPOSE).encrypt(key.encode())


def gateway_keys(host_name: str) -> Keys:
    """Return the keys that sign requests to the gateway of this host. Raises HostKeyError."""
    return signing_keys(key_of(host_name))


@lru_cache(maxsize=256)
def signing_keys(key: str) -> Keys:
    """Return a host's key in the form that signs."""
    return Keys([f"host:{key}"])


@transaction.atomic
def rekey() -> int:
    """Encrypt every stored key with the current SECRET_KEY and return how many; all or none.

    Raises HostKeyError.
    """
    accesses = [one for one in HostAccess.objects.select_for_update() if one.encrypted_key]
    for access in accesses:
        access.encrypted_key = encrypted(decrypted(access.name, bytes(access.encrypted_key)))
        access.save(update_fields=["encrypted_key"])
    return len(accesses)


def _derived(host_name: str) -> str:
    return salted_hmac("gpuplatform.host", host_name, algorithm="sha256").hexdigest()


@lru_cache(maxsize=256)
def _decrypted(stored: bytes, cipher: MultiFernet) -> str:
    try:
        return cipher.decrypt(stored).decode()
    except InvalidToken:
        raise HostKeyError(
            "The key of a host was stored under another SECRET_KEY. Add that key to SECRET_KEY_FALLBACKS, or let the "
            "host join again."
        ) from None
