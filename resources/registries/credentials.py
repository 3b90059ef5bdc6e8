"""Passwords of registries, encrypted in the database with a key that is derived from SECRET_KEY.

Fernet, with the keys of SECRET_KEY_FALLBACKS tried after the current one: `manage.py images rekey` encrypts everything
with the current key, after which the old one can go.
"""

import base64
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import transaction

from resources.images.references import registry_of
from resources.models import Registry
from resources.registries.login import RegistryLogin

_PURPOSE: Final = b"gpuplatform registry password"


class CredentialsError(Exception):
    """The stored password of a registry cannot be read; the message names the registry and says what to do."""


def set_password(registry: Registry, password: str) -> None:
    """Set the encrypted password of the registry, which the caller saves; "" removes it."""
    registry.encrypted_password = _cipher().encrypt(password.encode()) if password else b""


def login_of(registry: Registry) -> RegistryLogin | None:
    """Return the login at the registry; None where it has none. Raises CredentialsError."""
    if not registry.username:
        return None
    return RegistryLogin(address=registry.address, username=registry.username, password=_password(registry))


def login_for(reference: str) -> RegistryLogin | None:
    """Return the login with which an image is pulled or pushed; None where its registry is not known or open.

    Takes one query. Raises CredentialsError.
    """
    registry = Registry.objects.filter(address=registry_of(reference)).first()
    return login_of(registry) if registry else None


def push_target() -> Registry | None:
    """Return the registry to which images made from sessions are pushed; None where there is none."""
    return Registry.objects.filter(is_push_target=True).first()


@transaction.atomic
def rekey() -> int:
    """Encrypt every stored password with the current SECRET_KEY and return how many; all or none.

    Raises CredentialsError for one that no key of SECRET_KEY and SECRET_KEY_FALLBACKS decrypts.
    """
    registries = [one for one in Registry.objects.select_for_update() if one.encrypted_password]
    for registry in registries:
        set_password(registry, _password(registry))
        registry.save(update_fields=["encrypted_password"])
    return len(registries)


def _password(registry: Registry) -> str:
    if not registry.encrypted_password:
        return ""
    try:
        return _cipher().decrypt(bytes(registry.encrypted_password)).decode()
    except InvalidToken:
        raise CredentialsError(
            f"The password of registry {registry} was stored under another SECRET_KEY. Add that key to "
            "SECRET_KEY_FALLBACKS, or enter the password again under Administration, Registries."
        ) from None


def registry_keys() -> list[str]:
    """Return the keys under which passwords are stored, the current one first; hosts that have joined were given them.

    Nothing but these passwords can be read with them.
    """
    if settings.COMPUTE_REGISTRY_KEYS:
        return list(settings.COMPUTE_REGISTRY_KEYS)
    return [_derived(secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


def _cipher() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in registry_keys()])


def _derived(secret: str) -> str:
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret.encode())
    return base64.urlsafe_b64encode(derived).decode()
