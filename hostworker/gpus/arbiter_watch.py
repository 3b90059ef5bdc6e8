"""Keeps the arbiter of this host's GPU time running, and tells it what becomes of idle time in the host's group."""

from collections.abc import Callable
from typing import Final

from hostworker.enforcement.arbiter import Arbiter

POLL_INTERVAL_SECONDS: Final = 2.0


class ArbiterWatch:
    """Watches the arbiter of one host; `sharing` returns what its group says, "" while that is not known."""

    def __init__(self, arbiter: Arbiter, sharing: Callable[[], str]) -> None:
        self._arbiter = arbiter
        self._sharing = sharing

    def poll(self) -> None:
        """Bring the leases to what the group says, and have an arbiter run where sessions need one."""
        if (sharing := self._sharing()) and self._arbiter.folder.keys():
            self._arbiter.set_sharing(sharing)
        self._arbiter.hold()
