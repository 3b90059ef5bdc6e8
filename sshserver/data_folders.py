"""The data folders of a user as one tree of files, for SFTP: rights, quota and the operations. Blocking.

    /<name>              a folder of the user's own
    /<name>@<e-mail>     one that its owner shares with them

Paths are resolved as text, since no symbolic link is ever followed. Folders themselves are made, renamed and deleted on
their page or by the API. Every method raises FolderError or FilesError, whose messages are for the user.
"""

import os
import posixpath
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from accounts.models import User
from folders import access, quota, storage
from folders.access import Access
from folders.errors import FolderAccessError
from folders.files.descriptors import translated
from folders.files.direct import change_opened
from folders.files.errors import EntryKindError, EntryNotFoundError, InvalidPathError
from folders.files.folder_files import FolderFiles
from folders.models import Folder
from folders.quota import StorageUse

RIGHTS_SECONDS: Final = 0.7  # for which rights that were looked up hold: a share that is withdrawn ends within a second
COUNTED_BYTES: Final = 8 * 2**20  # written to one file between two looks at the quota
MAX_READ_BYTES: Final = 256 * 1024  # of one request; the client asks for the rest
MAX_OPEN: Final = 100  # files of one connection
ONLY_PAGES: Final = 'Data folders themselves are made, renamed and deleted on the page "Data folders" or by the API.'


@dataclass(frozen=True, slots=True)
class _Right:
    """A folder that the user reaches, and what they may do in it."""

    folder: Folder
    access: Access


@dataclass(slots=True)
class OpenFile:
    """A file that a client has open. The lock keeps its descriptor from being closed, and reused, while in use."""

    folder_id: str
    descriptor: int
    is_writable: bool
    length_bytes: int
    uncounted_bytes: int = 0  # written beyond the end, and not counted as used yet
    left_bytes: int | None = None  # that may be written until the quota is looked at again
    is_changed: bool = False
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class DataFolders:
    """The tree of one user. One operation at a time."""

    def __init__(self, user_id: int) -> None:
        self._user_id = user_id
        self._rights: dict[str, _Right] = {}
        self._looked_up_at = float("-inf")
        self._open: set[int] = set()  # ids of OpenFile objects

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of an entry, a symbolic link as such; None for the top of the tree."""
        name, inner = _split(path)
        if not name:
            self._all_rights()
            return None
        with self._files(name, Access.READ) as files:
            return files.direct.status(inner)

    def scan(self, path: str) -> list[tuple[str, os.stat_result | None]]:
        """Return name and status of the entries of a directory; None as of a folder that cannot be reached."""
        name, inner = _split(path)
        if not name:
            return [(each, None) for each in sorted(self._all_rights())]
        with self._files(name, Access.READ) as files:
            return list(files.direct.scan(inner))

    def open(self, path: str, flags: int, mode: int | None) -> OpenFile:
        """Open a regular file with flags of `os.open`, which may create it with these permissions."""
        if len(self._open) >= MAX_OPEN:
            raise FolderAccessError(f"No more than {MAX_OPEN} files can be open at once.")
        name, inner = _split(path)
        needed = Access.READ if flags & os.O_ACCMODE == os.O_RDONLY else Access.WRITE
        if not inner:
            raise EntryKindError("This is a directory.")
        with self._files(name, needed) as files:
            folder = self._right(name, needed).folder
            is_new = bool(flags & os.O_CREAT) and not _exists(files, inner)
            if needed == Access.WRITE:
                quota.check_room(folder, add_files=int(is_new))
            descriptor = files.direct.open(inner, flags, mode=0o644 if mode is None else mode)
        if is_new:
            quota.record_growth(folder, add_files=1)
        length = os.fstat(descriptor).st_size
        is_changed = bool(flags & os.O_TRUNC)
        opened = OpenFile(folder.pk, descriptor, needed == Access.WRITE, length, is_changed=is_changed, left_bytes=0)
        self._open.add(id(opened))
        return opened

    def read(self, file: OpenFile, offset: int, length: int) -> bytes:
        """Return at most `length` bytes from `offset`; b"" at the end."""
        with self._used(file, Access.READ):
            return os.pread(file.descriptor, min(length, MAX_READ_BYTES), offset)

    def write(self, file: OpenFile, offset: int, content: bytes) -> None:
        """Write all of the content at `offset`. Raises StorageQuotaError where the owner's quota does not allow it."""
        with self._used(file, Access.WRITE) as folder, translated("the file"):
            self._reserve(file, folder, offset + len(content))
            view = memoryview(content)
            while view:
                written = os.pwrite(file.descriptor, view, offset)
                view, offset = view[written:], offset + written

    def status_of_open(self, file: OpenFile) -> os.stat_result:
        """Return the status of an open file."""
        with self._used(file, Access.READ):
            return os.fstat(file.descriptor)

    def flush(self, file: OpenFile) -> None:
        """Have the disk take what was written."""
        with self._used(file, Access.READ):
            os.fsync(file.descriptor)

    def change_open(
        self, file: OpenFile, *, length: int | None, mode: int | None, times_ns: tuple[int, int] | None
    ) -> None:
        """Set length, permissions and times of a file that is open for writing."""
        with self._used(file, Access.WRITE) as folder, translated("the file"):
            if not file.is_writable:
                raise FolderAccessError("The file is not open for writing.")
            if length is not None:
                self._reserve(file, folder, length)
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
        if file.is_changed and (folder := Folder.objects.filter(pk=file.folder_id).first()):
            quota.record_growth(folder, add_bytes=file.uncounted_bytes)

    def change(self, path: str, *, length: int | None, mode: int | None, times_ns: tuple[int, int] | None) -> None:
        """Set length, permissions and times of an entry; nothing about a symbolic link."""
        name, inner = _split(path)
        if not inner:
            raise FolderAccessError(ONLY_PAGES)
        if length is not None:
            file = self.open(path, os.O_WRONLY, None)
            try:
                self.change_open(file, length=length, mode=None, times_ns=None)
            finally:
                self.close(file)
        with self._files(name, Access.WRITE) as files:
            files.direct.change(inner, mode=mode, times_ns=times_ns)

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        name, inner = self._inner(path)
        with self._files(name, Access.WRITE) as files:
            folder = self._right(name, Access.WRITE).folder
            quota.check_room(folder, add_files=1)
            files.mkdir(inner)
        quota.record_growth(folder, add_files=1)

    def remove(self, path: str, *, is_directory: bool) -> None:
        """Remove a file, or an empty directory, for good."""
        name, inner = self._inner(path)
        with self._files(name, Access.WRITE) as files:
            if is_directory:
                files.direct.remove_directory(inner)
            else:
                files.direct.remove(inner)
        quota.record_growth(self._right(name, Access.WRITE).folder)

    def move(self, source: str, target: str, *, replace: bool) -> None:
        """Move or rename an entry within a folder; `replace` replaces a file at the target."""
        old_name, old = self._inner(source)
        new_name, new = self._inner(target)
        if old_name != new_name:
            raise FolderAccessError("Nothing can be moved from one data folder to another over SFTP; copy it.")
        with self._files(old_name, Access.WRITE) as files:
            files.move(old, new, replace=replace)

    def read_link(self, path: str) -> str:
        """Return what a symbolic link says."""
        name, inner = self._inner(path)
        with self._files(name, Access.READ) as files:
            return files.direct.read_link(inner)

    def use(self, path: str) -> StorageUse:
        """Return what the owner of the folder at `path` uses and may use on its root."""
        name, _ = _split(path)
        if not name:
            raise EntryNotFoundError("Each data folder has a storage quota of its own; name one.")
        folder = self._right(name, Access.READ).folder
        return quota.storage_use(folder.owner, folder.root)

    def _all_rights(self) -> dict[str, _Right]:
        """Return the folders by their names in the tree, looked up at most RIGHTS_SECONDS ago."""
        if time.monotonic() - self._looked_up_at > RIGHTS_SECONDS:
            user = User.objects.filter(pk=self._user_id, is_active=True).first()
            if user is None:
                raise FolderAccessError("This account is disabled.")
            folders = Folder.objects.live().readable_by(user).with_rights_of(user)
            rights: dict[str, _Right] = {}
            for folder in folders.select_related("owner__policy", "root").order_by("pk"):
                rights.setdefault(_name_for(user, folder), _Right(folder, access.access(user, folder)))
            self._rights, self._looked_up_at = rights, time.monotonic()
        return self._rights

    def _right(self, name: str, needed: Access) -> _Right:
        right = self._all_rights().get(name)
        if right is None or right.access == Access.NONE:
            raise EntryNotFoundError("There is no such data folder, or it is not shared with you (any more).")
        if right.access < needed:
            raise FolderAccessError("The folder is shared with you read-only.")
        return right

    @contextmanager
    def _files(self, name: str, needed: Access) -> Iterator[FolderFiles]:
        with storage.files_of(self._right(name, needed).folder) as files:
            yield files

    @contextmanager
    def _used(self, file: OpenFile, needed: Access) -> Iterator[Folder]:
        """Give the file's folder to a block during which the file stays open, if the user has the right to it."""
        for right in self._all_rights().values():
            if right.folder.pk == file.folder_id and right.access >= needed:
                break
        else:
            raise FolderAccessError("The folder is not shared with you any more, or not for this.")
        with file.lock:
            if file.is_closed:
                raise EntryNotFoundError("The file is closed.")
            yield right.folder

    def _reserve(self, file: OpenFile, folder: Folder, end: int) -> None:
        """Count a write up to `end`; look at the quota where what is left of it, as last seen, may not suffice."""
        grown = max(0, end - file.length_bytes)
        file.is_changed = True
        if file.left_bytes is not None and file.uncounted_bytes + grown > min(file.left_bytes, COUNTED_BYTES):
            quota.check_room(folder, add_bytes=file.uncounted_bytes + grown)
            quota.record_growth(folder, add_bytes=file.uncounted_bytes)
            file.uncounted_bytes, file.left_bytes = 0, quota.storage_use(folder.owner, folder.root).left_bytes
        file.uncounted_bytes += grown
        file.length_bytes += grown

    def _inner(self, path: str) -> tuple[str, str]:
        """Return the folder's name and the path in it. Raises FolderAccessError for the folder itself and the top."""
        name, inner = _split(path)
        if not inner:
            raise FolderAccessError(ONLY_PAGES)
        return name, inner


def normal_path(path: str) -> str:
    """Return the absolute path without ".", ".." and double slashes."""
    return "/" + posixpath.normpath(f"/{path}").strip("/")


def _split(path: str) -> tuple[str, str]:
    """Return the name of the folder in the tree and the path in it; either may be ""."""
    if "\0" in path:
        raise InvalidPathError("The path has a NUL character, which no file name can have.")
    name, _, inner = normal_path(path)[1:].partition("/")
    return name, inner


def _name_for(user: User, folder: Folder) -> str:
    """Return the folder's name in the tree of `user`; a folder's own name never has an @."""
    if folder.owner_id == user.pk:
        return folder.name
    return f"{folder.name}@{folder.owner.email}".replace("/", "_")


def _exists(files: FolderFiles, path: str) -> bool:
    try:
        return stat.S_ISREG(files.direct.status(path).st_mode)
    except EntryNotFoundError:
        return False
