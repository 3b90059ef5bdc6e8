"""Bounds what sessions write to their host's disk outside of data folders: it ends who fills it, not who needs it.

A container's writable layer has no limit on most file systems, so it is watched, its bytes and its files: a file system
has a fixed number of inodes, and without any left nobody can make a file. A session beyond its policy's limit is ended,
after a warning at nine tenths. Where the engine has quotas (`runtime/docker_quotas.py`), programs get "no space left"
at the limit. Where the disk itself runs short of either the host takes no new sessions, and in the last resort the
session that has taken most is ended.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from folders.storage.roots import state_here
from hostworker.runtime_protocol import DiskSpace, Key, Runtime
from hostworker.terminals.notice import write_to_terminals
from resources.amounts.units import MIB, size_text
from resources.models import Host
from sessions import notes
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Mount, Session

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
MEASURE_SECONDS: Final = 60.0  # between two walks of all layers, unless the disk fills
PAUSE_FACTOR: Final = 19  # times the duration of the last walk, so that walks take a twentieth of the time; 1 if urgent
SURGE_FILES: Final = 100_000  # made on the disk since they were last counted, after which they are counted at once
WARNED_AT: Final = 0.9  # of the limit
LAST_RESORT: Final = 0.5  # of the reserve that is left
MIN_BLAMED_BYTES: Final = 256 * MIB  # what a session has at least written that is ended for a full disk
MIN_BLAMED_FILES: Final = 10_000  # the same, of a disk without inodes
REPEAT: Final = timedelta(hours=1)


class _Pace:
    """When layers are to be walked again, by what the last walk took."""

    def __init__(self) -> None:
        self._ended_at = float("-inf")
        self._took_seconds = 0.0

    def is_due(self, *, is_urgent: bool) -> bool:
        pause = self._took_seconds if is_urgent else max(MEASURE_SECONDS, PAUSE_FACTOR * self._took_seconds)
        return time.monotonic() - self._ended_at >= pause

    @contextmanager
    def walk(self) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self._ended_at = time.monotonic()
            self._took_seconds = self._ended_at - begun


class DiskWatch:
    """The disk of one host; `is_short` is read by the reconciliation, which then offers the host to nobody."""

    def __init__(self, runtime: Runtime, host: Host, reserve_bytes: int, reserve_percent: int = 0) -> None:
        """Below `reserve_bytes` of free space, or `reserve_percent` of its inodes, the host takes no sessions."""
        self.is_short = False
        self._runtime = runtime
        self._host = host
        self._reserve_bytes = reserve_bytes
        self._reserve_percent = reserve_percent
        self._bytes_pace, self._files_pace = _Pace(), _Pace()
        self._free_files = 0  # as the files were last counted
        self._folder_files: dict[tuple[str, str], int] = {}  # by session and folder, as it was first seen

    def poll(self) -> None:
        """Look at the disk, and at what sessions have taken of it when due. Raises EngineUnreachableError."""
        disks = self._runtime.disks
        space = disks.space()
        reserve_files = self._reserve_files(space)
        lacks_bytes = space is not None and space.free_bytes < self._reserve_bytes
        lacks_files = space is not None and space.free_files < reserve_files
        self._note_shortage(space, is_short=lacks_bytes or lacks_files)
        if self._bytes_pace.is_due(is_urgent=lacks_bytes):
            with self._bytes_pace.walk():
                written = disks.written_bytes()
            self._hold_bytes(written)
            if space and space.free_bytes < LAST_RESORT * self._reserve_bytes:
                self._end_largest(written, space)
        if self._files_pace.is_due(is_urgent=lacks_files or self._is_surging(space)):
            self._count_files(space, reserve_files)

    def _reserve_files(self, space: DiskSpace | None) -> float:
        """Return how many inodes are to stay free; 0 where their number is not fixed."""
        return space.total_files * self._reserve_percent / 100 if space else 0

    def _note_shortage(self, space: DiskSpace | None, *, is_short: bool) -> None:
        was_short, self.is_short = self.is_short, is_short
        if is_short and not was_short and space:
            free = size_text(space.free_bytes)
            logger.error(
                "host %s: takes no sessions, its disk has only %s and %s inodes free",
                self._host,
                free,
                space.free_files,
            )

    def _is_surging(self, space: DiskSpace | None) -> bool:
        return space is not None and self._free_files - space.free_files >= SURGE_FILES

    def _count_files(self, space: DiskSpace | None, reserve_files: float) -> None:
        """Count the files of all sessions, none much further than it may have, and hold them to their limits."""
        running = self._running()
        limits = {(session.pk, session.attempt): session.bounds.disk_files for session in running}
        self._free_files = space.free_files if space else 0
        with self._files_pace.walk():
            made = self._runtime.disks.made_files(limits)
        for session in running:
            used, limit = made.get((session.pk, session.attempt), 0), limits[session.pk, session.attempt]
            if limit is not None:
                over = f"It has made {used:,} files outside of data folders; its policy allows {limit:,}."
                near = (
                    f"It has made {used:,} files outside of data folders, and is ended beyond {limit:,}. "
                    "Delete files, or move them to a data folder."
                )
                self._hold(session, used, limit, over=over, near=near)
        grown = self._grown_folders(running, space)
        if space and space.free_files < LAST_RESORT * reserve_files:
            self._end_maker(running, made, grown, space)

    def _running(self) -> list[Session]:
        running = Session.objects.filter(host=self._host, status=Status.RUNNING)
        return list(running.select_related("owner__policy", "project__policy", "host").defer("owner__password"))

    def _hold_bytes(self, written: Mapping[Key, int]) -> None:
        for session in self._running():
            limit = session.bounds.disk_bytes
            if limit is None:
                continue
            used = written.get((session.pk, session.attempt), 0) + session.parked_bytes
            over = f"It has written {size_text(used)} outside of data folders; its policy allows {size_text(limit)}."
            near = (
                f"It has written {size_text(used)} outside of data folders, and is ended beyond {size_text(limit)}. "
                "Delete files, or move them to a data folder."
            )
            self._hold(session, used, limit, over=over, near=near)

    def _hold(self, session: Session, used: int, limit: int, *, over: str, near: str) -> None:
        """End the session where it is over its limit, and warn it where it is near."""
        if used > limit:
            services.end(session, Reason.DISK_LIMIT, over)
        elif used >= WARNED_AT * limit and notes.note_once(session, Reason.DISK_NEARLY_FULL, near, within=REPEAT):
            write_to_terminals(self._runtime, session, near)

    def _grown_folders(self, running: Sequence[Session], space: DiskSpace | None) -> dict[str, int]:
        """Return by how many files the folders on this disk have grown that each session may write to."""
        ids = [session.pk for session in running]
        mounts = Mount.objects.filter(session__in=ids, problem="", is_read_only=False).exclude(folder=None)
        known, self._folder_files = self._folder_files, {}
        grown = dict.fromkeys(ids, 0)
        for mount in mounts.select_related("folder__root"):
            if mount.folder is None or space is None or state_here(mount.folder.root).device != space.device:
                continue
            key, files = (mount.session_id, mount.folder.pk), mount.folder.used_files
            self._folder_files[key] = known.get(key, files)
            grown[mount.session_id] += max(0, files - self._folder_files[key])
        return grown

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

    def _end_maker(
        self, running: Sequence[Session], made: Mapping[Key, int], grown: Mapping[str, int], space: DiskSpace
    ) -> None:
        """End the session that has made most files, for the sake of all others."""
        counts = [(made.get((each.pk, each.attempt), 0) + grown[each.pk], each) for each in running]
        count, maker = max(counts, key=lambda pair: pair[0], default=(0, None))
        if maker is None or count < MIN_BLAMED_FILES:
            return
        detail = (
            f"The disk of host {self._host} has room for only {space.free_files:,} more files, and of its sessions "
            f"this one had made most: {count:,}."
        )
        services.end(maker, Reason.DISK_LIMIT, detail)
