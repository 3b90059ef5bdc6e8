"""Gateway tokens: short-lived signatures by which a host's gateway knows requests of the platform's own processes."""

from collections.abc import Sequence
from time import time as unix_time
from typing import Final

from proxy.authorization.signing import GATEWAY, InvalidSignatureError, Keys

HEADER: Final = "X-GP-Gateway"
LIFETIME_SECONDS: Final = 30
MAX_CLOCK_SKEW_SECONDS: Final = 30  # between two machines
RENEWAL_SECONDS: Final = LIFETIME_SECONDS / 2
VERIFICATION_SECONDS: Final = 1.0  # for which a verified token is not verified again


def issue(keys: Keys, fields: Sequence[str]) -> str:
    """Return a token for exactly these fields, as the value of HEADER; it is valid for LIFETIME_SECONDS."""
    return keys.sign(GATEWAY, (*fields, str(int(unix_time()) + LIFETIME_SECONDS)))


def verify(keys: Keys, token: str) -> list[str]:
    """Return the fields of a valid token.

    Raises InvalidSignatureError, with the reason for the gateway's log, for any other, expired ones included.
    """
    try:
        *fields, expiry = keys.fields(GATEWAY, token)
        seconds_left = int(expiry) - unix_time()
    except ValueError as error:
        raise InvalidSignatureError("it has not the fields of a gateway token") from error
    if seconds_left < -MAX_CLOCK_SKEW_SECONDS:
        raise InvalidSignatureError(f"it expired {-seconds_left:.0f} s ago; do the clocks agree?")
    if seconds_left > LIFETIME_SECONDS + MAX_CLOCK_SKEW_SECONDS:
        raise InvalidSignatureError(f"it would be valid for {seconds_left:.0f} s; do the clocks agree?")
    return fields


class IssuedTokens:
    """Tokens for endpoints, whose only field is the label; each issued once for many requests."""

    def __init__(self) -> None:
        self._issued: dict[tuple[str, str], tuple[float, bytes]] = {}

    def issue(self, label: str, key: str) -> bytes:
        """Return a token for the endpoint, signed by its gateway's key, that is valid for RENEWAL_SECONDS at least."""
        now = unix_time()
        issued = self._issued.get((label, key))
        if issued is None or issued[0] < now:
            self._issued = {name: each for name, each in self._issued.items() if each[0] >= now}
            token = issue(Keys([f"host:{key}"]), [label]).encode()
            issued = self._issued[label, key] = (now + RENEWAL_SECONDS, token)
        return issued[1]


class VerifiedTokens:
    """The same on the gateway's side: each verified once for many requests."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._verified: dict[bytes, tuple[float, str]] = {}

    def verify(self, token: bytes) -> str | None:
        """Return the label of the endpoint that a token is for; None unless it is valid."""
        now = unix_time()
        verified = self._verified.get(token)
        if verified is None or verified[0] <= now:
            self._verified = {value: each for value, each in self._verified.items() if each[0] > now}
            try:
                (label,) = verify(self._keys, token.decode("latin-1"))
            except (InvalidSignatureError, ValueError):
                return None
            verified = self._verified[token] = (now + VERIFICATION_SECONDS, label)
        return verified[1]
