"""Passes: short-lived proofs that a request to a host's gateway comes from a process that has the platform's keys."""

from collections.abc import Sequence
from time import time as unix_time
from typing import Final

from proxy.signing import GATEWAY, InvalidSignatureError, Keys

HEADER: Final = "X-GP-Gateway"
LIFE_SECONDS: Final = 30
SKEW_SECONDS: Final = 30  # by which the clocks of two machines may differ
RENEWED_AFTER: Final = LIFE_SECONDS / 2
CHECKED_AGAIN_AFTER: Final = 1.0


def issue(keys: Keys, about: Sequence[str]) -> str:
    """Return a pass for just what `about` says, as the value of HEADER; it holds LIFE_SECONDS."""
    return keys.sign(GATEWAY, (*about, str(int(unix_time()) + LIFE_SECONDS)))


def check(keys: Keys, value: str) -> list[str]:
    """Return what the pass is about. Raises Forged, with the reason for the gateway's own log, also when it is over."""
    try:
        *about, expiry = keys.fields(GATEWAY, value)
        left = int(expiry) - unix_time()
    except ValueError as error:
        raise InvalidSignatureError("its fields are not a pass's") from error
    if left < -SKEW_SECONDS:
        raise InvalidSignatureError(f"it was over {-left:.0f} s ago; do the clocks agree?")
    if left > LIFE_SECONDS + SKEW_SECONDS:
        raise InvalidSignatureError(f"it would hold for {left:.0f} s; do the clocks agree?")
    return about


class GatewayTokens:
    """Passes for endpoints, about their labels: signed, and checked, once for many requests."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._signed: dict[str, tuple[float, bytes]] = {}
        self._checked: dict[bytes, tuple[float, str]] = {}

    def of(self, label: str) -> bytes:
        """Return a pass for the endpoint, good for RENEWED_AFTER at least."""
        now = unix_time()
        made = self._signed.get(label)
        if made is None or made[0] < now:
            self._signed = {name: each for name, each in self._signed.items() if each[0] >= now}
            made = self._signed[label] = (
                now + RENEWED_AFTER,
                issue(self._keys, [label]).encode(),
            )
        return made[1]

    def label(self, signed: bytes) -> str | None:
        """Return the label of the endpoint that a pass is for; None if it is forged, too old or about another thing."""
        now = unix_time()
        known = self._checked.get(signed)
        if known is None or known[0] <= now:
            self._checked = {text: each for text, each in self._checked.items() if each[0] > now}
            try:
                (label,) = check(self._keys, signed.decode("latin-1"))
            except (InvalidSignatureError, ValueError):
                return None
            known = self._checked[signed] = (now + CHECKED_AGAIN_AFTER, label)
        return known[1]
