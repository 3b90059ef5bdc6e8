"""The data folders of a user as one tree of files, for SFTP. Blocking.

Paths are resolved as text, since no symbolic link is ever followed. Folders themselves are made, renamed and deleted on
their page or by the API.
"""

import os
import posixpath
import stat
from typing import Final

from folders.errors import FolderAccessError
from folders.files.errors import EntryKindError, EntryNotFoundError, InvalidPathError
from folders.files.folder_files import FolderFiles
from folders.quotas import rules as quota
from folders.quotas.rules import StorageUse
from folders.sharing.access import Access
from folders.storage import paths as storage
from sshserver.folder_rights import FolderRights
from sshserver.open_files import OpenFile, OpenFiles

ONLY_PAGES: Final = 'Data folders themselves are made, renamed and deleted on the page "Data folders" or by the API.'


class DataFolders:
    """The tree of one user, an operation at a time. Raises FolderError and FilesError with messages for the user."""

    def __init__(self, user_id: int) -> None:
        self._rights = FolderRights(user_id)
        self.files = OpenFiles(self._rights)

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of an entry, a symbolic link as such; None for the top of the tree."""
        name, inner = _split(path)
        if not name:
            return None
        with storage.files_of(self._rights.folder(name, Access.READ)) as files:
            return files.direct.status(inner)

    def scan(self, path: str) -> list[tuple[str, os.stat_result | None]]:
        """Return name and status of the entries of a directory; None for the folders at the top."""
        name, inner = _split(path)
        if not name:
            return [(each, None) for each in self._rights.names()]
        with storage.files_of(self._rights.folder(name, Access.READ)) as files:
            return list(files.direct.scan(inner))

    def open(self, path: str, flags: int, mode: int | None) -> OpenFile:
        """Open a regular file with flags of `os.open`, which may create it with these permissions."""
        self.files.require_free()
        name, inner = _split(path)
        needed = Access.READ if flags & os.O_ACCMODE == os.O_RDONLY else Access.WRITE
        folder = self._rights.folder(name, needed)
        if not inner:
            raise EntryKindError("This is a directory.")
        with storage.files_of(folder) as files:
            is_new = bool(flags & os.O_CREAT) and not _exists(files, inner)
            use = quota.check_room(folder, add_files=int(is_new)) if needed == Access.WRITE else None
            descriptor = files.direct.open(inner, flags, mode=0o644 if mode is None else mode)
        if is_new:
            quota.record_growth(folder, add_files=1)
        return self.files.add(folder, descriptor, use, is_changed=bool(flags & os.O_TRUNC))

    def change(self, path: str, *, length: int | None, mode: int | None, times_ns: tuple[int, int] | None) -> None:
        """Set length, permissions and times of an entry; nothing about a symbolic link."""
        name, inner = _inner(path)
        if length is not None:
            file = self.open(path, os.O_WRONLY, None)
            try:
                self.files.change(file, length=length, mode=None, times_ns=None)
            finally:
                self.files.close(file)
        with storage.files_of(self._rights.folder(name, Access.WRITE)) as files:
            files.direct.change(inner, mode=mode, times_ns=times_ns)

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        name, inner = _inner(path)
        folder = self._rights.folder(name, Access.WRITE)
        with storage.files_of(folder) as files:
            quota.check_room(folder, add_files=1)
            files.mkdir(inner)
        quota.record_growth(folder, add_files=1)

    def remove(self, path: str, *, is_directory: bool) -> None:
        """Remove a file, or an empty directory, for good."""
        name, inner = _inner(path)
        folder = self._rights.folder(name, Access.WRITE)
        with storage.files_of(folder) as files:
            if is_directory:
                files.direct.remove_directory(inner)
            else:
                files.direct.remove(inner)
        quota.record_growth(folder)  # which has it measured

    def move(self, source: str, target: str, *, replace: bool) -> None:
        """Move or rename an entry within a folder; `replace` replaces a file at the target."""
        old_name, old = _inner(source)
        new_name, new = _inner(target)
        if old_name != new_name:
            raise FolderAccessError("Nothing can be moved from one data folder to another over SFTP; copy it.")
        with storage.files_of(self._rights.folder(old_name, Access.WRITE)) as files:
            files.move(old, new, replace=replace)

    def read_link(self, path: str) -> str:
        """Return what a symbolic link says."""
        name, inner = _inner(path)
        with storage.files_of(self._rights.folder(name, Access.READ)) as files:
            return files.direct.read_link(inner)

    def use(self, path: str) -> StorageUse:
        """Return what the owner of the folder at `path` uses and may use on its root."""
        name, _ = _split(path)
        if not name:
            raise EntryNotFoundError("Each data folder has the quota of its owner; name a folder.")
        folder = self._rights.folder(name, Access.READ)
        return quota.storage_use(folder.holder, folder.root)


def normal_path(path: str) -> str:
    """Return the absolute path without ".", ".." and double slashes."""
    return "/" + posixpath.normpath(f"/{path}").strip("/")


def _split(path: str) -> tuple[str, str]:
    """Return the name of the folder in the tree and the path in it; either may be ""."""
    if "\0" in path:
        raise InvalidPathError("The path has a NUL character, which no file name can have.")
    name, _, inner = normal_path(path)[1:].partition("/")
    return name, inner


def _inner(path: str) -> tuple[str, str]:
    """Return the folder's name and the path in it. Raises FolderAccessError for the folder itself and the top."""
    name, inner = _split(path)
    if not inner:
        raise FolderAccessError(ONLY_PAGES)
    return name, inner


def _exists(files: FolderFiles, path: str) -> bool:
    try:
        return stat.S_ISREG(files.direct.status(path).st_mode)
    except EntryNotFoundError:
        return False
