"""What the data plane signs and checks: cookies of endpoints, requests of a web process to a gateway, and its execs.

HMAC-SHA256 over `<purpose>.<fields>`, so that one kind never passes for another; the key's name goes along, so that
keys can be changed while both are in use.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

COOKIE: Final = "cookie"
GATEWAY: Final = "gateway"
EXEC: Final = "exec"


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret in hex: what is stored, or sent on, in its place."""
    return hashlib.sha256(secret.encode()).hexdigest()


class InvalidSignatureError(Exception):
    """Not signed by us, not for this purpose, or not well-formed."""


class Keys:
    """Named signing keys, the first of which signs; all of them check."""

    def __init__(self, named: Sequence[str]) -> None:
        """Take `name:key` each. Raises ValueError for anything else, and for none at all."""
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
        """Return the fields signed, in the characters that a cookie's value and a header may have."""
        body = base64.urlsafe_b64encode("|".join(fields).encode()).decode().rstrip("=")
        return f"v1.{self._first}.{body}.{self._mac(self._first, purpose, body)}"

    def fields(self, purpose: str, signed: str) -> list[str]:
        """Return what was signed for this purpose. Raises Forged."""
        try:
            version, name, body, mac = signed.split(".")
            if version != "v1" or not hmac.compare_digest(self._mac(name, purpose, body), mac):
                raise InvalidSignatureError
            return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode().split("|")
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise InvalidSignatureError from error

    def _mac(self, name: str, purpose: str, body: str) -> str:
        mac = hmac.digest(self._keys[name], f"{purpose}.{body}".encode(), "sha256")
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Who may use one endpoint, by which log-in, until when: what the cookie on its origin says."""

    label: str
    epoch: int
    user: int  # 0: nobody known, by a share link
    login: str  # digest of the login session or share link behind it
    issued_at: float  # Unix seconds
    expires_at: float

    def to_cookie(self, keys: Keys) -> str:
        """Return the cookie's value."""
        times = (repr(self.issued_at), repr(self.expires_at))
        return keys.sign(COOKIE, (self.label, str(self.epoch), str(self.user), self.login, *times))

    @classmethod
    def from_cookie(cls, keys: Keys, value: str) -> Self:
        """Return what the cookie grants; whether it still does is for the caller to decide. Raises Forged."""
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
