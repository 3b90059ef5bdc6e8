"""Plain operations on the files of a folder, as SFTP has them: in place, without trash or staging."""

import os
import stat
from typing import Final

from folders.files.descriptors import (
    FILE_MODE,
    Owner,
    directory,
    readable,
    require_regular,
    status_of,
    translated,
)
from folders.files.errors import EntryKindError, EntryNotFoundError
from folders.files.paths import display, entry_parts_of, new_parts_of, parts_of

MAX_SCANNED: Final = 100_000  # entries of a directory that are ever listed
MODE_MASK: Final = 0o777  # permissions that can be set: no set-user-id and the like
_PATH_ONLY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectFiles:
    """Operations below the directory `files`, a descriptor of which the caller owns. All raise FilesError.

    No symbolic link is ever followed, and nothing but regular files is opened.
    """

    def __init__(self, files: int, owner: Owner) -> None:
        self._files = files
        self._owner = owner

    def status(self, path: str) -> os.stat_result:
        """Return the status of the entry itself; for "" of the folder."""
        parts = parts_of(path)
        if not parts:
            with translated(""):
                return os.fstat(self._files)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            return status_of(parent, parts[-1])

    def scan(self, path: str) -> list[tuple[str, os.stat_result]]:
        """Return name and status of at most MAX_SCANNED entries of a directory, in no order."""
        found = []
        with directory(self._files, parts_of(path)) as opened, translated(path):
            listed = readable(opened, os.O_RDONLY | os.O_DIRECTORY)
            try:
                with os.scandir(listed) as entries:
                    for entry, _ in zip(entries, range(MAX_SCANNED), strict=False):
                        try:
                            found.append((entry.name, entry.stat(follow_symlinks=False)))
                        except FileNotFoundError:
                            continue
            finally:
                os.close(listed)
        return found

    def open(self, path: str, flags: int = os.O_RDONLY, *, mode: int = FILE_MODE) -> int:
        """Return a descriptor of a regular file, which the caller closes.

        `flags` are an access mode of `os.open` with O_APPEND, O_CREAT, O_EXCL and O_TRUNC as wanted. `mode` are the
        permissions of a new file, which belongs to the owner of the folder's files.
        """
        if not flags & os.O_CREAT:
            return self._open_existing(path, flags)
        if not flags & os.O_EXCL:
            try:
                return self._open_existing(path, flags)
            except EntryNotFoundError:
                pass
        parts = new_parts_of(path)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            access = flags & (os.O_ACCMODE | os.O_APPEND)
            made = os.open(
                parts[-1], access | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE, dir_fd=parent
            )
            try:
                os.fchmod(made, mode & MODE_MASK)
                self._owner.take(made)
            except BaseException:
                os.close(made)
                raise
            return made

    def _open_existing(self, path: str, flags: int) -> int:
        parts = entry_parts_of(path)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            looked_up = os.open(parts[-1], _PATH_ONLY, dir_fd=parent)
            try:
                require_regular(os.fstat(looked_up), path)
                # O_NONBLOCK: a lease that a session holds on the file must not delay this process
                opened = readable(looked_up, flags & (os.O_ACCMODE | os.O_APPEND) | os.O_NONBLOCK)
            finally:
                os.close(looked_up)
            if flags & os.O_TRUNC:
                try:
                    os.ftruncate(opened, 0)
                except BaseException:
                    os.close(opened)
                    raise
            return opened

    def read_link(self, path: str) -> str:
        """Return what a symbolic link says; it is not looked whether anything is there."""
        parts = entry_parts_of(path)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            if not stat.S_ISLNK(status_of(parent, parts[-1]).st_mode):
                raise EntryKindError(f"This is not a symbolic link: {display(path)}")
            return os.readlink(parts[-1], dir_fd=parent)

    def remove(self, path: str) -> None:
        """Remove an entry that is not a directory, for good."""
        parts = entry_parts_of(path)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            if stat.S_ISDIR(status_of(parent, parts[-1]).st_mode):
                raise EntryKindError(f"This is a directory: {display(path)}")
            os.unlink(parts[-1], dir_fd=parent)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        parts = entry_parts_of(path)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            os.rmdir(parts[-1], dir_fd=parent)

    def change(self, path: str, *, mode: int | None = None, times_ns: tuple[int, int] | None = None) -> None:
        """Set permissions, and times of access and modification, of a file or directory of the folder."""
        parts = parts_of(path)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            opened = os.open(parts[-1] if parts else ".", _PATH_ONLY, dir_fd=parent)
            try:
                kind = os.fstat(opened).st_mode
                if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                    raise EntryKindError(f"This is neither a file nor a directory: {display(path)}")
                change_opened(f"/proc/self/fd/{opened}", mode=mode, times_ns=times_ns)
            finally:
                os.close(opened)


def change_opened(target: int | str, *, mode: int | None, times_ns: tuple[int, int] | None) -> None:
    """Set permissions and times of an open file: a descriptor, or its path in /proc. Raises OSError."""
    if mode is not None:
        os.chmod(target, mode & MODE_MASK)
    if times_ns is not None:
        os.utime(target, ns=times_ns)
