"""Files on their way into a folder: appended to by one writer at a time, then moved into place whole."""

import ctypes
import fcntl
import os
import threading
from contextlib import suppress
from typing import Final

from folders.files.descriptors import translated
from folders.files.entries import FolderEntry
from folders.files.errors import EntryExistsError, FilesError
from folders.files.paths import MAX_NAME_BYTES, display
from folders.files.staging import Staging

_libc: Final = ctypes.CDLL(None)
_SYNC_FILE_RANGE_WRITE: Final = 2
MAX_NUMBER: Final = 1000  # tried in a name before giving up


class PartialFileBusyError(FilesError):
    """Another request writes to the file."""


class PartialFile:
    """A staged file that is open for appending and locked against other writers, also of other processes.

    The kernel releases the lock when the process dies. Methods may be called in threads; `close` waits for them.
    """

    def __init__(self, staging: Staging, name: str) -> None:
        """Open and lock the file. Raises PartialFileBusyError, and EntryNotFoundError if there is none."""
        self._opened = staging.open(name)
        self._is_open = True
        self._guard = threading.Lock()
        try:
            fcntl.flock(self._opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.size = os.lseek(self._opened, 0, os.SEEK_END)
        except OSError as error:
            os.close(self._opened)
            raise PartialFileBusyError("Another request is uploading this file.") from error

    def append(self, data: bytes) -> None:
        """Write the data at the end. Raises FilesError; what was written until then stays, and counts in `size`."""
        with self._guard, translated(""):
            self._require_open()
            left = memoryview(data)
            while left:
                written = os.write(self._opened, left)
                left = left[written:]
                self.size += written

    def cut(self, size_bytes: int) -> None:
        """Remove what lies behind the first `size_bytes`. Raises FilesError."""
        with self._guard, translated(""):
            self._require_open()
            os.ftruncate(self._opened, size_bytes)
            self.size = os.lseek(self._opened, 0, os.SEEK_END)

    def write_back(self) -> None:
        """Start writing to the disk what is in memory, so that `sync` takes less time; errors show there."""
        with self._guard:
            self._require_open()
            _libc.sync_file_range(self._opened, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        """Return once the bytes are on the disk. Raises FilesError: NFS finds out here that the storage is full."""
        with self._guard, translated(""):
            self._require_open()
            os.fsync(self._opened)

    def close(self) -> None:
        """Close and unlock it."""
        with self._guard:
            if self._is_open:
                self._is_open = False
                os.close(self._opened)

    def _require_open(self) -> None:
        if not self._is_open:
            raise ValueError("the partial file is closed")


def publish_beside(staging: Staging, name: str, path: str) -> FolderEntry:
    """Publish the file by the first path that is free of "a.txt", "a (1).txt", ... Raises FilesError."""
    above, slash, last = path.rpartition("/")
    for number in range(MAX_NUMBER):
        with suppress(EntryExistsError):
            return staging.publish(name, f"{above}{slash}{numbered(last, number)}")
    raise EntryExistsError(f"There are too many files of this name: {display(path)}")


def numbered(name: str, number: int) -> str:
    """Return the name with " (number)" before its extension, cut to what file systems take; 0 changes nothing."""
    if not number:
        return name
    stem, extension = os.path.splitext(name)
    mark = f" ({number})"
    room = MAX_NAME_BYTES - len(os.fsencode(mark + extension))
    if room < 1:
        stem, extension, room = name, "", MAX_NAME_BYTES - len(mark)
    return os.fsencode(stem)[:room].decode(errors="ignore") + mark + extension
