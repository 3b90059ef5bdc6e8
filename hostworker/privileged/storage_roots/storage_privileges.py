"""The operations on storage roots that need root on the host."""

import time
from pathlib import Path
from typing import Final
from uuid import UUID

from folders.files import kernel_quota
from folders.files.kernel_quota import KernelQuota
from folders.files.layout import RootDirectory, purge
from folders.files.walk import Usage
from hostworker.privileged.base import PrivilegesError
from hostworker.privileged.storage_roots.idmapped_mounts import IdmappedMounts

MEASURE_SECONDS: Final = 30.0  # for one folder; the worker waits for its helper


class StoragePrivileges:
    """Root on this host for the files of data folders."""

    def __init__(self) -> None:
        self._roots = IdmappedMounts()

    def end(self) -> None:
        """Take away the mounts of storage roots that this process alone needs."""
        self._roots.release_all()

    def limit_storage(self, root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> bool:
        """Have the file system of a storage root limit what the owner's directory on it holds, None: not at all.

        `project` is `folders.files.kernel_quota.project_number` of both. Return False where it enforces no quota.
        """
        return kernel_quota.limit(root, owner, project, max_bytes, max_files) != KernelQuota.NONE

    def map_root(self, root: Path, key: str) -> Path:
        """Return where a storage root is mounted with its owner's files as the container user's, there from now on.

        It is the root with this key. Raises OSError with a sentence where it cannot be; see idmapped_mounts.
        """
        return self._roots.hold(root, key)

    def unmap_root(self, key: str) -> None:
        """Take that mount away, unless another worker on this host needs it."""
        self._roots.release(key)

    def purge(self, root: Path, key: str, holder: int, folder: str = "") -> bool:
        """Remove some of what was expunged on a storage root, whoever's it is; return whether nothing is left.

        Of the holder's folders, or where one is named of its trash.
        """
        return purge(root, key, holder, folder)

    def folder_usage(self, root: Path, key: str, holder: int, folder: str, most: int | None) -> Usage:
        """Return what a folder takes, up to about `most` files, with what the worker's user may not look at."""
        deadline = time.monotonic() + MEASURE_SECONDS

        def check() -> None:
            if time.monotonic() > deadline:
                raise PrivilegesError(f"{folder} was not measured within {MEASURE_SECONDS:.0f} s")

        with RootDirectory(str(root), UUID(key)).open(holder, folder) as files:
            return files.usage(check, most)
