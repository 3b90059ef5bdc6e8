"""Waiting for what other processes do, with a deadline."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

SECONDS: Final = 60.0  # longer than anything that tests wait for takes on a busy machine

Found = TypeVar("Found")


def until(look: Callable[[], Found], *, seconds: float = SECONDS) -> Found:
    """Return the first truthy answer of `look`, asked 50 times a second; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing came of {look} within {seconds} s")


async def eventually(is_so: Callable[[], object]) -> None:
    """Wait as `until` does, in another thread, while the loop goes on."""
    await asyncio.to_thread(until, is_so)
