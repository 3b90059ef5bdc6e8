"""The signed word of a web process to a gateway: this request is for that endpoint, and was admitted."""

import time
from collections.abc import Callable
from typing import Final

from sessions.proxy.signing import GATEWAY, Forged, Keys

LIFE: Final = 60.0  # seconds
RENEWED_AFTER: Final = 30.0


class Passes:
    """Signs a pass for each endpoint, anew every 30 seconds; checks those that come."""

    def __init__(self, keys: Keys, now: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._now = now
        self._signed: dict[str, tuple[float, bytes]] = {}
        self._checked: dict[bytes, tuple[float, str]] = {}

    def of(self, label: str) -> bytes:
        """Return a pass for the endpoint, good for 30 seconds at least."""
        now = self._now()
        made = self._signed.get(label)
        if made is None or made[0] < now:
            self._signed = {name: each for name, each in self._signed.items() if each[0] >= now}
            signed = self._keys.sign(GATEWAY, (label, repr(now + LIFE))).encode()
            made = self._signed[label] = (now + RENEWED_AFTER, signed)
        return made[1]

    def label(self, signed: bytes) -> str | None:
        """Return the label of the endpoint that a pass is for; None if it is forged or too old."""
        now = self._now()
        known = self._checked.get(signed)
        if known is None:
            known = self._read(signed)
            if known is None:
                return None
            self._checked = {text: each for text, each in self._checked.items() if each[0] > now}
            self._checked[signed] = known
        return known[1] if known[0] > now else None

    def _read(self, signed: bytes) -> tuple[float, str] | None:
        try:
            label, expiry = self._keys.fields(GATEWAY, signed.decode("latin-1"))
            return float(expiry), label
        except (Forged, ValueError):
            return None
