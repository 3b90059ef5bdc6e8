"""Tokens and SSH keys of users for hosts of repositories."""

from accounts.models import User
from imports.models import ImportCredential


def add_token(owner: User, *, name: str, host: str, token: str, username: str = "") -> ImportCredential:
    """Store a token. Raises RejectedError at its fields."""
    raise NotImplementedError


def add_key(owner: User, *, name: str, host: str, private_key: str = "") -> ImportCredential:
    """Store an SSH key, or make one; `public_key` is to be added at the host. Raises RejectedError at its fields."""
    raise NotImplementedError


def delete(credential: ImportCredential) -> None:
    """Delete a credential; imports under way that have it already go on."""
    raise NotImplementedError
