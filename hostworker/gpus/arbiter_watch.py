"""Keeps the arbiter of this host's GPU time running, and tells it what becomes of idle time in the host's group."""

from typing import Final

from hostworker.enforcement.arbiter import Arbiter
from resources.models import Host, ResourceGroup

POLL_INTERVAL_SECONDS: Final = 2.0


class ArbiterWatch:
    """Watches the arbiter of one host."""

    def __init__(self, host: Host, arbiter: Arbiter) -> None:
        self._host = host
        self._arbiter = arbiter

    def poll(self) -> None:
        """Bring the leases to what the group says, and have an arbiter run where sessions need one."""
        if self._arbiter.folder.keys():
            self._arbiter.set_sharing(ResourceGroup.objects.get(hosts=self._host).sharing)
        self._arbiter.hold()
