"""Files of data folders that an SFTP client has open: read and written in place, within rights and quota."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from folders.errors import FolderAccessError
from folders.files.descriptors import translated
from folders.files.direct import change_opened
from folders.files.errors import EntryNotFoundError
from folders.models import Folder
from folders.quotas import rules as quota
from folders.quotas.rules import StorageUse
from folders.sharing.access import Access
from sshserver.folder_rights import FolderRights

COUNTED_BYTES: Final = 8 * 2**20  # written to one file between two looks at the quota
MAX_READ_BYTES: Final = 256 * 1024  # of one request; the client asks for the rest
MAX_OPEN: Final = 100  # files of one connection


@dataclass(slots=True)
class OpenFile:
    """A file that a client has open. The lock keeps its descriptor from being closed, and reused, while in use."""

    folder: Folder
    descriptor: int
    is_writable: bool
    is_changed: bool
    length_bytes: int
    left_bytes: int | None  # that may be written until the quota is looked at again; None: any
    uncounted_bytes: int = 0  # written beyond the end, and not counted as used yet
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenFiles:
    """The open files of one connection. Blocking; raises FolderError and FilesError."""

    def __init__(self, rights: FolderRights) -> None:
        self._rights = rights
        self._open: set[int] = set()  # ids of OpenFile objects

    def require_free(self) -> None:
        """Raise FolderAccessError if the client has as many files open as it may."""
        if len(self._open) >= MAX_OPEN:
            raise FolderAccessError(f"No more than {MAX_OPEN} files can be open at once.")

    def add(self, folder: Folder, descriptor: int, use: StorageUse | None, *, is_changed: bool) -> OpenFile:
        """Return the open file of a descriptor, which `close` closes.

        `use` is what the owner used when it was opened for writing, None for one that is open for reading alone.
        """
        length_bytes = os.fstat(descriptor).st_size
        left_bytes = use.left_bytes if use else 0
        file = OpenFile(folder, descriptor, use is not None, is_changed, length_bytes, left_bytes)
        self._open.add(id(file))
        return file

    def read(self, file: OpenFile, offset: int, length: int) -> bytes:
        """Return at most `length` bytes from `offset`; b"" at the end."""
        with self._used(file, Access.READ):
            return os.pread(file.descriptor, min(length, MAX_READ_BYTES), offset)

    def write(self, file: OpenFile, offset: int, content: bytes) -> None:
        """Write all of the content at `offset`. Raises StorageQuotaError where the owner's quota does not allow it."""
        with self._used(file, Access.WRITE) as folder:
            _reserve(file, folder, offset + len(content))
            view = memoryview(content)
            while view:
                written = os.pwrite(file.descriptor, view, offset)
                view, offset = view[written:], offset + written

    def status(self, file: OpenFile) -> os.stat_result:
        """Return the status of the file."""
        with self._used(file, Access.READ):
            return os.fstat(file.descriptor)

    def flush(self, file: OpenFile) -> None:
        """Have the disk take what was written."""
        with self._used(file, Access.READ):
            os.fsync(file.descriptor)

    def change(self, file: OpenFile, *, length: int | None, mode: int | None, times_ns: tuple[int, int] | None) -> None:
        """Set length, permissions and times of a file that is open for writing."""
        with self._used(file, Access.WRITE) as folder:
            if not file.is_writable:
                raise FolderAccessError("The file is not open for writing.")
            if length is not None:
                _reserve(file, folder, length)
                os.ftruncate(file.descriptor, length)
                file.length_bytes = length
            change_opened(file.descriptor, mode=mode, times_ns=times_ns)

    def close(self, file: OpenFile) -> None:
        """Close the file, and count what was written. Does nothing if it is closed already."""
        with file.lock:
            self._open.discard(id(file))
            if file.is_closed:
                return
            file.is_closed = True
            os.close(file.descriptor)
        if file.is_changed:
            quota.record_growth(file.folder, add_bytes=file.uncounted_bytes)

    @contextmanager
    def _used(self, file: OpenFile, needed: Access) -> Iterator[Folder]:
        """Give the file's folder to a block during which the file stays open, if the user has the right to it."""
        folder = self._rights.folder_with_id(file.folder.pk, needed)
        with file.lock, translated("the file"):
            if file.is_closed:
                raise EntryNotFoundError("The file is closed.")
            yield folder


def _reserve(file: OpenFile, folder: Folder, end: int) -> None:
    """Count a write up to `end`; look at the quota where what is left of it, as last seen, may not suffice."""
    grown = max(0, end - file.length_bytes)
    file.is_changed = True
    if file.left_bytes is not None and file.uncounted_bytes + grown > min(file.left_bytes, COUNTED_BYTES):
        left_bytes = quota.check_room(folder, add_bytes=file.uncounted_bytes + grown).left_bytes
        quota.record_growth(folder, add_bytes=file.uncounted_bytes)
        file.left_bytes = None if left_bytes is None else left_bytes - file.uncounted_bytes
        file.uncounted_bytes = 0
    file.uncounted_bytes += grown
    file.length_bytes += grown
