"""What a worker knows of its sandboxes, and when it may work on them. Pure but for the clock and the lock."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from hostworker.runtime.sandboxes.containers import Sandbox

QUIET_SECONDS: Final = 0.3  # without any start, before the engine is given work that nobody waits for
MAX_DELAY_SECONDS: Final = 2.0  # for which starts, one after the other, may delay a removal


class SandboxState:
    """The free sandboxes, the containers to be removed, and the starts under way; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all that follow
        self.free: dict[str, Sandbox] = {}  # by name; may be out of date
        self.discarded: dict[str, float] = {}  # ids to be removed, oldest first, and by when at the latest
        self._has_keeper = False
        self._starts_under_way = 0
        self._disturbed_at = -QUIET_SECONDS

    @contextmanager
    def pause_background_work(self) -> Iterator[None]:
        """Have nothing made ready during the block, in which a session's container is created or started."""
        with self._lock:
            self._starts_under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._starts_under_way -= 1
                self._disturbed_at = time.monotonic()

    def is_quiet(self) -> bool:
        """Return whether no container has been started for a while."""
        with self._lock:
            return not self._starts_under_way and time.monotonic() - self._disturbed_at >= QUIET_SECONDS

    def set_keeper(self, is_running: bool) -> None:
        """Note whether a keeper runs, which removes what is discarded."""
        with self._lock:
            self._has_keeper = is_running

    def add_free(self, name: str, sandbox: Sandbox) -> None:
        """Note that the sandbox is free."""
        with self._lock:
            self.free[name] = sandbox

    def pop_free(self) -> tuple[str, Sandbox] | None:
        """Return name and sandbox of a free one, which is then no longer counted as such; None where there is none."""
        with self._lock:
            return self.free.popitem() if self.free else None

    def replace_free(self, alive: Mapping[str, Sandbox], size: int) -> set[str]:
        """Count the sandboxes `alive` at the engine as free, `size` at most, known ones first; return their names."""
        with self._lock:
            known = {name: each for name, each in self.free.items() if name in alive}
            self.free = dict(list((known | dict(alive)).items())[:size])
            return set(self.free)

    def discard(self, container_id: str) -> bool:
        """Leave the removal to the keeper, soon; return False where none runs, so that the caller has to remove it."""
        with self._lock:
            if not self._has_keeper:
                return False
            now = self._disturbed_at = time.monotonic()
            self.discarded.setdefault(container_id, now + MAX_DELAY_SECONDS)
            return True

    def next_due(self) -> str | None:
        """Return the container that was discarded first, if it is time to remove it."""
        is_quiet = self.is_quiet()
        with self._lock:
            due = next(iter(self.discarded), None)
            return due if due and (is_quiet or time.monotonic() >= self.discarded[due]) else None

    def forget(self, container_id: str) -> None:
        """Note that the container was removed, or could not be and is to be found again."""
        with self._lock:
            self.discarded.pop(container_id, None)
