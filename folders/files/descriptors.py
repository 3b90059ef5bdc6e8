"""System calls relative to open directories: no symbolic link is ever followed, nothing but regular files is opened."""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from folders.files.errors import (
    EntryExistsError,
    EntryKindError,
    EntryNotFoundError,
    FilesError,
    InvalidPathError,
    StorageAccessError,
    StorageFullError,
)
from folders.files.paths import Parts, display

CONTAINER_UID: Final = 1000  # of the user `work` in every session, to whom the files belong there
CONTAINER_GID: Final = 1000
DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o644

_PATH_ONLY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAME_NOREPLACE: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)
_ERRORS: Final[dict[int, tuple[type[FilesError], str]]] = {
    errno.ENOENT: (EntryNotFoundError, "There is no such file or directory: {}"),
    errno.EEXIST: (EntryExistsError, "There is already a file or directory of this name: {}"),
    errno.ENOTEMPTY: (EntryExistsError, "There is already a directory of this name, with something in it: {}"),
    errno.ENOTDIR: (EntryKindError, "This is not a directory: {}"),
    errno.EISDIR: (EntryKindError, "This is a directory: {}"),
    errno.ELOOP: (EntryKindError, "This is a symbolic link, which is not followed here: {}"),
    errno.EINVAL: (InvalidPathError, "A directory cannot be moved into itself: {}"),
    errno.ENAMETOOLONG: (InvalidPathError, "The name is too long: {}"),
    errno.EILSEQ: (InvalidPathError, "The file system cannot store this name: {}"),
    errno.ENOSPC: (StorageFullError, "The storage is full; nothing was written: {}"),
    errno.EDQUOT: (StorageFullError, "Your storage quota is used up; nothing was written: {}"),
    errno.EROFS: (StorageAccessError, "The storage is read-only at present: {}"),
    errno.EACCES: (StorageAccessError, "The platform has no permission for this: {}"),
    errno.EPERM: (StorageAccessError, "The platform has no permission for this: {}"),
    errno.EAGAIN: (StorageAccessError, "A session keeps the file to itself at present: {}"),
    errno.EMLINK: (StorageAccessError, "The directory has too many entries: {}"),
    errno.EXDEV: (EntryKindError, "This lies on another file system: {}"),
}


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Raise OSError as the FilesError that says the same to a user; `shown` is the path in the message."""
    try:
        yield
    except OSError as error:
        kind, message = _ERRORS.get(
            error.errno or 0, (StorageAccessError, f"The storage failed ({error.strerror}): {{}}")
        )
        raise kind(message.format(display(shown) or "the folder")) from error


def open_directory(start: int, parts: Parts) -> int:
    """Return an O_PATH descriptor of the directory at `parts` below `start`, to be closed by the caller.

    Resolves name by name from directory to directory, so that whatever is renamed meanwhile, no step leads out of
    `start`: each opens an entry of a directory that is already open, and refuses symbolic links. Raises OSError, ELOOP
    for a symbolic link.
    """
    current = os.dup(start)
    try:
        for part in parts:
            below = _open_entry_directory(current, part)
            os.close(current)
            current = below
    except BaseException:
        os.close(current)
        raise
    return current


def _open_entry_directory(parent: int, name: str) -> int:
    try:
        return os.open(name, _PATH_ONLY | os.O_DIRECTORY, dir_fd=parent)
    except NotADirectoryError as error:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(status_of(parent, name).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
        raise


def open_or_make_directory(start: int, parts: Parts, owner: "Owner", mode: int = DIRECTORY_MODE) -> int:
    """Return `open_directory`, after making the directories that are not there. Raises OSError."""
    current = os.dup(start)
    try:
        for part in parts:
            try:
                below = _open_entry_directory(current, part)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    make_directory(current, part, owner, mode)
                below = _open_entry_directory(current, part)
            os.close(current)
            current = below
    except BaseException:
        os.close(current)
        raise
    return current


@contextmanager
def directory(start: int, parts: Parts) -> Iterator[int]:
    """Give `open_directory` to a block and close it behind; errors are raised as FilesError."""
    with translated("/".join(parts)):
        opened = open_directory(start, parts)
    try:
        yield opened
    finally:
        os.close(opened)


def status_of(parent: int, name: str) -> os.stat_result:
    """Return the status of the entry itself. Raises OSError."""
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def readable(opened: int, flags: int = os.O_RDONLY) -> int:
    """Return a new descriptor for reading of what an O_PATH descriptor names, whatever happened to its path."""
    return os.open(f"/proc/self/fd/{opened}", flags | os.O_CLOEXEC)


def sync_directory(opened: int) -> None:
    """Return once the names in an open directory are on the disk. Raises OSError."""
    listed = readable(opened, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(listed)
    finally:
        os.close(listed)


def open_regular(parent: int, name: str) -> int:
    """Return a descriptor of the regular file for reading. Raises OSError, and EntryKindError for any other kind.

    The kind is looked up before anything is opened: opening a device can have effects, opening a FIFO can block. So can
    a lease (fcntl F_SETLEASE) that a session holds on the file: opening it then fails with EAGAIN.
    """
    looked_up = os.open(name, _PATH_ONLY, dir_fd=parent)
    try:
        require_regular(os.fstat(looked_up), name)
        opened = readable(looked_up, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(opened, True)
        return opened
    finally:
        os.close(looked_up)


def require_regular(status: os.stat_result, shown: str) -> None:
    """Raise EntryKindError unless the status is that of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise EntryKindError(f"This is a directory: {display(shown)}")
    if stat.S_ISLNK(status.st_mode):
        raise EntryKindError(f"This is a symbolic link, which is not followed here: {display(shown)}")
    raise EntryKindError(f"This is no regular file but a device, a pipe or a socket: {display(shown)}")


class Owner(NamedTuple):
    """To whom the files of a storage root belong on its disk: user and group."""

    uid: int
    gid: int

    @classmethod
    def by(cls, status: os.stat_result) -> "Owner":
        """Return the owner by the status of what the platform made: what root makes is for the container's user."""
        return cls(status.st_uid, status.st_gid) if status.st_uid else CONTAINER_USER

    @property
    def is_container_user(self) -> bool:
        """Whether sessions can have the files as they are."""
        return self.uid == CONTAINER_UID

    def take(self, opened: int) -> None:
        """Become the owner of an open file or directory, if this process is not that user itself."""
        if os.geteuid() == 0:
            os.fchown(opened, self.uid, self.gid)


CONTAINER_USER: Final = Owner(CONTAINER_UID, CONTAINER_GID)


def make_directory(parent: int, name: str, owner: Owner, mode: int = DIRECTORY_MODE) -> None:
    """Make a directory that belongs to the owner. Raises OSError."""
    os.mkdir(name, mode, dir_fd=parent)
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(made).st_uid == os.geteuid():  # else somebody has exchanged it already
            os.fchmod(made, mode)
            owner.take(made)
    finally:
        os.close(made)


def rename_to_free_name(source: int, name: str, target: int, new_name: str) -> None:
    """Rename an entry unless the new name is taken. Raises OSError with EEXIST if it is.

    Where the file system has no renameat2(RENAME_NOREPLACE), such as NFS, a file is linked and unlinked, which never
    replaces either; a directory is renamed, which then replaces nothing but an empty directory. A directory of this
    process' own user that the user may not write to, as moving it takes, is moved all the same.
    """
    try:
        _rename(source, name, target, new_name)
    except PermissionError:
        if not stat.S_ISDIR(status_of(source, name).st_mode):
            raise
        with _writable_directory(source, name):
            _rename(source, name, target, new_name)


@contextmanager
def _writable_directory(parent: int, name: str) -> Iterator[None]:
    """Have a directory writable for its owner during a block. Raises PermissionError unless this process is that."""
    opened = _open_entry_directory(parent, name)
    try:
        path, mode = f"/proc/self/fd/{opened}", stat.S_IMODE(os.fstat(opened).st_mode)
        os.chmod(path, mode | stat.S_IRWXU)
        try:
            yield
        finally:
            os.chmod(path, mode)
    finally:
        os.close(opened)


def _rename(source: int, name: str, target: int, new_name: str) -> None:
    old, new = os.fsencode(name), os.fsencode(new_name)
    if _libc.renameat2(source, old, target, new, _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
    if stat.S_ISDIR(status_of(source, name).st_mode):
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
        return
    os.link(name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    os.unlink(name, dir_fd=source)


def names_in(opened: int) -> list[str]:
    """Return the names in an open directory. Raises OSError."""
    listed = readable(opened, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.listdir(listed)
    finally:
        os.close(listed)
