"""Passes: short-lived proofs that a request to a host's gateway comes from a process that has the platform's keys."""

from collections.abc import Sequence
from time import time as unix_time
from typing import Final

from sessions.proxy.signing import GATEWAY, Forged, Keys

HEADER: Final = "X-GP-Gateway"
LIFE_SECONDS: Final = 30
SKEW_SECONDS: Final = 30  # by which the clocks of two machines may differ


def issue(keys: Keys, about: Sequence[str]) -> str:
    """Return a pass for just what `about` says, as the value of HEADER; it holds LIFE_SECONDS."""
    return keys.sign(GATEWAY, (*about, str(int(unix_time()) + LIFE_SECONDS)))


def check(keys: Keys, value: str) -> list[str]:
    """Return what the pass is about. Raises Forged, with the reason for the gateway's own log, also when it is over."""
    try:
        *about, expiry = keys.fields(GATEWAY, value)
        left = int(expiry) - unix_time()
    except ValueError as error:
        raise Forged("its fields are not a pass's") from error
    if left < -SKEW_SECONDS:
        raise Forged(f"it was over {-left:.0f} s ago; do the clocks agree?")
    if left > LIFE_SECONDS + SKEW_SECONDS:
        raise Forged(f"it would hold for {left:.0f} s; do the clocks agree?")
    return about
