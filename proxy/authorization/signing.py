"""Signatures of endpoint cookies, of requests to a gateway, and of engine calls through one.

HMAC-SHA256 over `<purpose>.<fields>`, so that a value of one purpose is invalid for another. Values name their key, so
that keys can be rotated while both are valid.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

COOKIE: Final = "cookie"
GATEWAY: Final = "gateway"
EXEC: Final = "exec"


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret in hex, which is stored or sent in its place."""
    return hashlib.sha256(secret.encode()).hexdigest()


class InvalidSignatureError(Exception):
    """A value that is not signed by one of the keys, not for this purpose, or malformed."""


class Keys:
    """Named signing keys: the first signs, all verify."""

    def __init__(self, named: Sequence[str]) -> None:
        """Parse keys written as `name:key`. Raises ValueError for any other form, and if there is none."""
        self._keys: dict[str, bytes] = {}
        for entry in named:
            name, colon, key = entry.partition(":")
            if not (name and name.isalnum() and colon and len(key) >= 16):
                raise ValueError("a signing key is `name:key`, the name of letters and digits, the key of 16 or more")
            self._keys[name] = key.encode()
        if not self._keys:
            raise ValueError("at least one signing key is needed")
        self._first = next(iter(self._keys))

    def sign(self, purpose: str, fields: Sequence[str]) -> str:
        """Return the fields with their signature, in characters that are valid in cookies and headers."""
        body = base64.urlsafe_b64encode("|".join(fields).encode()).decode().rstrip("=")
        return f"v1.{self._first}.{body}.{self._mac(self._first, purpose, body)}"

    def fields(self, purpose: str, signed: str) -> list[str]:
        """Return the signed fields of a value for this purpose. Raises InvalidSignatureError."""
        try:
            version, name, body, mac = signed.split(".")
            if version != "v1" or not hmac.compare_digest(self._mac(name, purpose, body), mac):
                raise InvalidSignatureError
            return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode().split("|")
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidSignatureError from error

    def _mac(self, name: str, purpose: str, body: str) -> str:
        mac = hmac.digest(self._keys[name], f"{purpose}.{body}".encode(), "sha256")
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The right of a user or share link to use one endpoint: the content of the cookie on its origin."""

    label: str
    epoch: int
    user: int  # id; 0: anonymous, by a share link
    login: str  # digest of the login session or share link
    issued_at: float  # Unix seconds
    expires_at: float  # Unix seconds

    def to_cookie(self, keys: Keys) -> str:
        """Return the cookie's value."""
        times = (repr(self.issued_at), repr(self.expires_at))
        return keys.sign(COOKIE, (self.label, str(self.epoch), str(self.user), self.login, *times))

    @classmethod
    def from_cookie(cls, keys: Keys, value: str) -> Self:
        """Return the grant in a cookie, which the caller must still check for expiry and revocation.

        Raises InvalidSignatureError.
        """
        fields = keys.fields(COOKIE, value)
        try:
            label, epoch, user, login, issued_at, expires_at = fields
            return cls(
                label=label,
                epoch=int(epoch),
                user=int(user),
                login=login,
                issued_at=float(issued_at),
                expires_at=float(expires_at),
            )
        except ValueError as error:
            raise InvalidSignatureError from error
