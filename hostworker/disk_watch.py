"""Bounds what sessions write to their host's disk outside of data folders: it ends who fills it, not who needs it.

A container's writable layer has no limit on most file systems, so it is watched: a session beyond its policy's limit is
ended, after a warning at nine tenths. Where the engine has quotas (`runtime/docker_quotas.py`), programs get "no space
left" at the limit. Where the disk itself runs short the host takes no new sessions, and in the last resort the session
that has written most is ended.
"""

import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from hostworker.runtime.base import DiskSpace, Key, Runtime
from hostworker.terminal_notice import write_to_terminals
from resources.models import Host
from resources.units import MIB, size_text
from sessions import notes, services
from sessions.lifecycle import Reason, Status
from sessions.models import Session

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
MEASURE_SECONDS: Final = 60.0  # between two walks of all layers, unless the disk fills
WARNED_AT: Final = 0.9  # of the limit
LAST_RESORT: Final = 0.5  # of the reserve that is left
MIN_BLAMED_BYTES: Final = 256 * MIB  # what a session has at least written that is ended for a full disk
REPEAT: Final = timedelta(hours=1)


class DiskWatch:
    """The disk of one host; `is_short` is read by the reconciliation, which then offers the host to nobody."""

    def __init__(self, runtime: Runtime, host: Host, reserve_bytes: int) -> None:
        """`reserve_bytes` is the free space below which the host takes no sessions."""
        self.is_short = False
        self._runtime = runtime
        self._host = host
        self._reserve_bytes = reserve_bytes
        self._measured_at = float("-inf")

    def poll(self) -> None:
        """Look at the disk, and at what sessions have written when that is due. Raises EngineUnreachableError."""
        disks = self._runtime.disks()
        space = disks.space()
        was_short, self.is_short = self.is_short, space is not None and space.free_bytes < self._reserve_bytes
        if self.is_short and not was_short and space:
            logger.error(
                "host %s: takes no sessions, its disk has only %s free", self._host, size_text(space.free_bytes)
            )
        if not self.is_short and time.monotonic() - self._measured_at < MEASURE_SECONDS:
            return
        self._measured_at = time.monotonic()
        written = disks.written_bytes()
        self._hold_to_limits(written)
        if space and space.free_bytes < LAST_RESORT * self._reserve_bytes:
            self._end_largest(written, space)

    def _running(self) -> list[Session]:
        running = Session.objects.filter(host=self._host, status=Status.RUNNING)
        return list(running.select_related("owner__policy", "project__policy", "host").defer("owner__password"))

    def _hold_to_limits(self, written: Mapping[Key, int]) -> None:
        for session in self._running():
            limit = session.bounds.disk_bytes
            used = written.get((session.pk, session.attempt), 0) + session.parked_bytes
            if limit is None or used < WARNED_AT * limit:
                continue
            if used > limit:
                detail = (
                    f"It has written {size_text(used)} outside of data folders; its policy allows {size_text(limit)}."
                )
                services.end(session, Reason.DISK_LIMIT, detail)
                continue
            detail = (
                f"It has written {size_text(used)} outside of data folders, and is ended beyond {size_text(limit)}. "
                "Delete files, or move them to a data folder."
            )
            if notes.note(session, Reason.DISK_NEARLY_FULL, detail, at_most_every=REPEAT):
                write_to_terminals(self._runtime, session, detail)

    def _end_largest(self, written: Mapping[Key, int], space: DiskSpace) -> None:
        """End the session that has written most, for the sake of all others."""
        sizes = [(written.get((session.pk, session.attempt), 0), session) for session in self._running()]
        used, largest = max(sizes, key=lambda pair: pair[0], default=(0, None))
        if largest is None or used < MIN_BLAMED_BYTES:
            return
        detail = (
            f"The disk of host {self._host} has only {size_text(space.free_bytes)} left, and of its sessions this one "
            f"had written most: {size_text(used)} outside of data folders."
        )
        services.end(largest, Reason.DISK_LIMIT, detail)
