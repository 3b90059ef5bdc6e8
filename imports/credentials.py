"""Tokens and SSH keys of users for hosts of repositories, encrypted by Fernet with a key derived from SECRET_KEY."""

import re
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from django.db import transaction

from accounts.encryption import cipher_for
from accounts.models import User
from imports.addresses import host_error
from imports.models import NAME_LENGTH, CredentialKind, ImportCredential
from resources import clock
from sessions.errors import RejectedError

MAX_CREDENTIALS: Final = 20  # of one user
MAX_TOKEN: Final = 2000
MAX_KEY: Final = 20_000
_PURPOSE: Final = "gpuplatform import credential"
_USERNAME: Final = re.compile(r"[A-Za-z0-9_.@+-]*")


class UnreadableCredentialError(Exception):
    """The secret was stored under a SECRET_KEY that is known no more."""


def add_token(owner: User, *, name: str, host: str, token: str, username: str = "") -> ImportCredential:
    """Store a token. Raises RejectedError at its fields."""
    token, username = token.strip(), username.strip()
    errors: dict[str, str] = {}
    if not token or len(token) > MAX_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        errors |= {"token": "Paste the token, which has no spaces."}
    if len(username) > NAME_LENGTH or not _USERNAME.fullmatch(username):
        errors["username"] = "This is not a user name."
    row = ImportCredential(kind=CredentialKind.TOKEN.value, username=username)
    return _stored(owner, row, name, host, token, errors)


def add_key(owner: User, *, name: str, host: str, private_key: str = "") -> ImportCredential:
    """Store an SSH key, or make one; `public_key` is to be added at the host. Raises RejectedError at its fields."""
    errors, row = {}, ImportCredential(kind=CredentialKind.SSH_KEY.value)
    try:
        key = load_ssh_private_key(private_key.strip().encode() + b"\n", None) if private_key else None
        if len(private_key) > MAX_KEY:
            raise ValueError
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
        errors["private_key"] = "Paste a private key in OpenSSH's format, without a passphrase."
    key = key or Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    row.public_key = f"{public} gpuplatform-import"
    return _stored(owner, row, name, host, private, errors)


def delete(credential: ImportCredential) -> None:
    """Delete a credential; imports under way that have it already go on."""
    credential.delete()


def for_program(credential: ImportCredential) -> dict[str, Any]:
    """Return what the program that fetches gets. Raises UnreadableCredentialError."""
    try:
        secret = cipher_for(_PURPOSE).decrypt(bytes(credential.encrypted_secret)).decode()
    except InvalidToken:
        raise UnreadableCredentialError(
            f"The credential {credential.name} was stored under another SECRET_KEY. Delete it and add it again."
        ) from None
    about = {"host": credential.host, "username": credential.username, "known_hosts": credential.known_hosts}
    return about | {"private_key" if credential.is_key else "token": secret}


@transaction.atomic
def rekey() -> int:
    """Encrypt every secret with the current SECRET_KEY and return how many; one that no key decrypts stays as it is."""
    count = 0
    for credential in ImportCredential.objects.select_for_update().order_by("pk"):
        try:
            credential.encrypted_secret = cipher_for(_PURPOSE).rotate(bytes(credential.encrypted_secret))
        except InvalidToken:
            continue
        credential.save(update_fields=["encrypted_secret"])
        count += 1
    return count


@transaction.atomic
def _stored(
    owner: User, row: ImportCredential, name: str, host: str, secret: str, errors: dict[str, str]
) -> ImportCredential:
    name, host = name.strip(), host.strip().lower()
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)  # so that two requests at once are counted
    own = ImportCredential.objects.filter(owner=owner)
    if not name or len(name) > NAME_LENGTH or not name.isprintable():
        errors["name"] = f"Give it a name of at most {NAME_LENGTH} characters."
    elif own.filter(name=name).exists():
        errors["name"] = "You have a credential of this name already."
    elif own.count() >= MAX_CREDENTIALS:
        errors["name"] = f"You have {MAX_CREDENTIALS} credentials already; delete one first."
    if error := host_error(host):
        errors["host"] = error
    if errors:
        raise RejectedError(errors)
    row.owner, row.name, row.host, row.created_at = owner, name, host, clock.now()
    row.encrypted_secret = cipher_for(_PURPOSE).encrypt(secret.encode())
    row.save()
    return row
