"""What a host does for the storage roots that it has: measures folders, removes what has expired, holds quotas."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.db import DatabaseError, connections

from folders import sweeps
from folders.files.roots import RootState
from folders.files.walk import Usage
from folders.models import StorageRoot
from folders.quotas import measure
from folders.storage import paths as storage
from folders.storage import roots
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime_protocol import Runtime
from hostworker.storage.mapped_roots import MappedRoots
from hostworker.storage.storage_quota import StorageQuotas, enforced_roots
from resources.models import Host

logger = logging.getLogger(__name__)

SURGE_FILES: Final = 50_000  # made on a root, after which what sessions write to is measured at once
END_SECONDS: Final = 2.0  # that the worker's end waits for file systems


@dataclass(frozen=True, slots=True)
class _AsRoot:
    """What the host's root does on one storage root; see `measure.AsRoot`."""

    privileges: HostPrivileges
    path: Path
    key: str

    def purge(self, holder: int, folder: str = "") -> bool:
        return self.privileges.purge(self.path, self.key, holder, folder)

    def usage(self, holder: int, folder: str, most: int | None) -> Usage:
        return self.privileges.folder_usage(self.path, self.key, holder, folder, most)


class FolderStorage:
    """The storage roots of one host. What can hang with a file system has a thread for each root."""

    def __init__(self, runtime: Runtime, host: Host, privileges: HostPrivileges, stopped: threading.Event) -> None:
        self.roots: Sequence[StorageRoot] = ()  # as of the last check
        self._runtime = runtime
        self._host = host
        self._privileges = privileges
        self._quotas = StorageQuotas(runtime, host, privileges)
        self._mapped = MappedRoots(runtime)
        self._stopped = stopped
        self._threads: dict[int, threading.Thread] = {}
        self._swept_at: dict[int, float] = {}
        self._free_files: dict[int, int] = {}  # by root, as its folders were last measured for that many made

    def check_storage(self) -> None:
        """Record which roots the host has."""
        engine_problem = self._runtime.folders_problem()

        def problem_of(root: StorageRoot, state: RootState) -> str:
            return self._mapped.problem_of(root, state) or engine_problem

        self.roots = roots.check(self._host, lambda: not self._privileges.problem(), problem_of)

    def serve_roots(self, *, is_any_due: bool = True, has_limits: bool = True) -> None:
        """Measure and clear away on every root that has no thread at it already.

        What is measured in a hurry is so even where no folder `is_any_due`. Limits are set where the host `has_limits`.
        """
        for root in self.roots:
            thread = self._threads.get(root.pk)
            if (thread is None or not thread.is_alive()) and not storage.unavailable_reason(root):
                self._threads[root.pk] = threading.Thread(
                    target=self._serve, args=(root, is_any_due, has_limits), name=f"storage {root}", daemon=True
                )
                self._threads[root.pk].start()

    def hold_quotas(self) -> None:
        """Make mounts of users over their storage quota read-only, and writable again."""
        self._quotas.hold_mounts()

    def end(self) -> None:
        """Wait for the threads, but not for long: one may hang, and all are safe to be cut off."""
        deadline = time.monotonic() + END_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        self._mapped.end()

    def _serve(self, root: StorageRoot, is_any_due: bool, has_limits: bool) -> None:
        try:
            measure.lower_priority()
            as_root = _AsRoot(self._privileges, Path(root.path), str(root.key))
            if has_limits:
                self._limit_owners(root)
            is_surging = self._is_surging(root)
            if is_any_due or is_surging:
                measure.measure_due(root, self._stopped, is_urgent=is_surging, as_root=as_root)
            if time.monotonic() - self._swept_at.get(root.pk, -math.inf) >= sweeps.SWEEP_SECONDS:
                sweeps.sweep(root, as_root.purge)
                self._swept_at[root.pk] = time.monotonic()
        except DatabaseError as error:
            logger.warning("storage root %s: will be looked at again: %s", root, error)
        except Exception:
            logger.exception("storage root %s: will be looked at again", root)
        finally:
            connections.close_all()

    def _is_surging(self, root: StorageRoot) -> bool:
        """Return whether so many files were made on the root since this was last true that folders may be over."""
        free = roots.state_here(root).free_files
        before = self._free_files.setdefault(root.pk, free)
        is_surging = before - free >= SURGE_FILES
        if is_surging or free > before:
            self._free_files[root.pk] = free
        return is_surging

    def _limit_owners(self, root: StorageRoot) -> None:
        """Pass the limits on to the file system where it enforces any; a failure is logged, and tried again."""
        if not enforced_roots(self._host).filter(root=root).exists():
            return
        try:
            self._quotas.limit_owners(root)
        except OSError as error:
            logger.warning("storage root %s: its quotas could not be set, will try again: %s", root, error)
