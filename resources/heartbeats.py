"""When services last showed that they work, in Redis, by which metrics, `/readyz` and `doctor` know of them."""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import Final

from django.core.cache import cache
from redis.exceptions import RedisError

from resources import clock

NOTE_SECONDS: Final = 1.0  # between two notes of a process
KEEP_SECONDS: Final = 10.0  # between those of `keep`


class HeartbeatName(StrEnum):
    """What is known by a heartbeat of its own; web servers are asked themselves, host workers write to PostgreSQL."""

    SCHEDULER = "scheduler"  # its worker runs
    BEAT = "beat"  # what it asks for is carried out
    IMAGES = "images"
    SSH = "ssh"


_noted: Final[dict[str, float]] = {}


def pass_of(group_id: int) -> str:
    """Return the name under which the passes over a resource group are noted."""
    return f"pass.{group_id}"


def note(name: str) -> None:
    """Note that it works now; without Redis that is not known."""
    now = time.monotonic()
    if now - _noted.get(name, float("-inf")) < NOTE_SECONDS:
        return
    _noted[name] = now
    with suppress(RedisError, OSError):
        cache.set(_key(name), clock.now().timestamp(), timeout=None)


def keep(name: str) -> None:
    """Note it again and again, by a thread, until this process ends."""

    def go_on() -> None:
        while True:
            note(name)
            time.sleep(KEEP_SECONDS)

    threading.Thread(target=go_on, name=f"heartbeat of {name}", daemon=True).start()


def ages(names: Iterable[str]) -> dict[str, float]:
    """Return for how many seconds each has not been noted; without those that never were. Raises RedisError."""
    found = cache.get_many([_key(name) for name in names])
    now = clock.now().timestamp()
    return {key.removeprefix(_key("")): max(0.0, now - at) for key, at in found.items()}


def _key(name: str) -> str:
    return f"heartbeat.{name}"
