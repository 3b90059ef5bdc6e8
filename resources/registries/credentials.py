"""Passwords of registries, encrypted in the database with keys that hosts are given when they join."""

from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import transaction

from accounts.encryption import derived_keys
from resources.models import Registry
from resources.registries.login import RegistryLogin
from resources.registries.references import registry_of

_PURPOSE: Final = "gpuplatform registry password"


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
    return derived_keys(_PURPOSE)


def _cipher() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in registry_keys()])
