"""Files on their way into a folder: written where no session sees them, then renamed into place whole."""

import os
import re
import stat
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from folders.files.descriptors import (
    FILE_MODE,
    Owner,
    directory,
    names_in,
    rename_to_free_name,
    require_regular,
    status_of,
    sync_directory,
    translated,
)
from folders.files.entries import FolderEntry, entry_from
from folders.files.errors import InvalidPathError
from folders.files.paths import entry_parts_of, new_parts_of

STAGING: Final = "uploads"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Staging:
    """The directory `uploads` of a folder; the caller makes the names, which are never a user's."""

    def __init__(self, folder: int, files: int, owner: Owner) -> None:
        self._folder = folder
        self._files = files
        self._owner = owner

    def open(self, name: str, *, create: bool = False) -> int:
        """Return a descriptor for reading and writing; with `create` of a new file. The caller closes it."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        with directory(self._folder, (STAGING,)) as area, translated(name):
            return os.open(_checked(name), flags, 0o600, dir_fd=area)

    def length_bytes(self, name: str) -> int:
        """Return how much of the file is there."""
        with directory(self._folder, (STAGING,)) as area, translated(name):
            return status_of(area, _checked(name)).st_size

    def modified_at(self, name: str) -> datetime:
        """Return when the file was last written to."""
        with directory(self._folder, (STAGING,)) as area, translated(name):
            return datetime.fromtimestamp(status_of(area, _checked(name)).st_mtime, UTC)

    def names(self) -> list[str]:
        """Return the names of all files here."""
        with directory(self._folder, (STAGING,)) as area, translated(STAGING):
            return sorted(names_in(area))

    def remove(self, name: str) -> None:
        """Remove the file; one that is not there is no error."""
        with directory(self._folder, (STAGING,)) as area, translated(name), suppress(FileNotFoundError):
            os.unlink(_checked(name), dir_fd=area)

    def publish(self, name: str, path: str, *, replace: bool = False) -> FolderEntry:
        """Move the file to `path` in the folder, whose directory exists, and return its entry.

        The file is flushed to disk and given to the owner of the folder's files first. `replace` replaces a file (or a
        symbolic link itself), never a directory; its permissions are kept. Raises EntryExistsError, and FilesError
        otherwise.
        """
        parts = entry_parts_of(path) if replace else new_parts_of(path)
        with (
            directory(self._files, parts[:-1]) as parent,
            directory(self._folder, (STAGING,)) as area,
            translated(path),
        ):
            opened = os.open(_checked(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=area)
            try:
                require_regular(os.fstat(opened), name)
                os.fchmod(opened, _mode_at(parent, parts[-1]) if replace else FILE_MODE)
                self._owner.take(opened)
                os.fsync(opened)
                if replace:
                    os.rename(name, parts[-1], src_dir_fd=area, dst_dir_fd=parent)
                else:
                    rename_to_free_name(area, name, parent, parts[-1])
                sync_directory(parent)
                return entry_from(parts[-1], os.fstat(opened))
            finally:
                os.close(opened)


def _mode_at(parent: int, name: str) -> int:
    """Return the permissions of the file that is replaced, without set-user-id and the like."""
    try:
        status = status_of(parent, name)
    except FileNotFoundError:
        return FILE_MODE
    return status.st_mode & 0o777 if stat.S_ISREG(status.st_mode) else FILE_MODE


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPathError("Not a name of an upload.")
    return name
