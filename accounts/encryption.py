"""Encryption of secrets in the database: Fernet, with a key for each purpose that is derived from SECRET_KEY.

Keys of SECRET_KEY_FALLBACKS decrypt, too; `manage.py rekey` encrypts everything with the current one. The derivation is
HKDF of RFC 5869 with SHA-256, the purpose as its `info`.
"""

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


def cipher_for(purpose: str) -> MultiFernet:
    """Return what encrypts and decrypts the secrets of this purpose; its `decrypt` raises fernet.InvalidToken."""
    return _cipher(tuple(derived_keys(purpose)))


def derived_keys(purpose: str) -> list[str]:
    """Return the Fernet keys of a purpose, that of the current SECRET_KEY first."""
    return [_derived(purpose, secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


@lru_cache(maxsize=64)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


@lru_cache(maxsize=64)
def _derived(purpose: str, secret: str) -> str:
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=purpose.encode()).derive(secret.encode())
    return base64.urlsafe_b64encode(derived).decode()
