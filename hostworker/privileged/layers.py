"""The writable layer of a container: how many files it has, counted by a walk with an end."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from folders.files import kernel_quota
from folders.files.walk import usage_of
from resources import procfs
from resources.procfs import MountEntry

MAX_COUNTED_FILES: Final = 2_000_000  # files of a layer without a limit; a walk takes some 5 us for each


def bound_files(main_pid: int, max_files: int | None) -> int | None:
    """Return how many files the layer of the container with this main process has, None where that is not known.

    A file system that keeps a quota for the layer refuses more than `max_files` from now on. The layer is walked all
    the same, since its user may give files to another project; until it is clear that it has more than `max_files`.
    """
    with suppress(OSError):  # it has ended, or this process is not root
        layer = upper_folder(procfs.mounts(main_pid))
        if layer is None:
            return None
        opened = os.open(layer, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            kernel_quota.limit_files(opened, max_files)
            return usage_of(opened, most=MAX_COUNTED_FILES if max_files is None else max_files + 1).files
        finally:
            os.close(opened)
    return None


def upper_folder(mounts: Iterable[MountEntry]) -> Path | None:
    """Return what overlayfs writes to for the root of a process with these mounts; None if it has another root."""
    for mount in mounts:
        if mount.point != "/" or mount.kind != "overlay":
            continue
        for option in mount.super_options.split(","):
            name, _, value = option.partition("=")
            if name == "upperdir":
                path = Path(procfs.unescaped(value))
                return path if path.is_absolute() else None
    return None
