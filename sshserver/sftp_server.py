"""SFTP requests (draft-ietf-secsh-filexfer-02, version 3) for the data folders of a user."""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Final, NoReturn, TypeVar

import asyncssh
from asyncssh import FXF_APPEND, FXF_CREAT, FXF_EXCL, FXF_READ, FXF_TRUNC, FXF_WRITE
from django.db import DatabaseError, close_old_connections

from folders.errors import FolderAccessError, FolderError
from folders.files.descriptors import CONTAINER_GID, CONTAINER_UID
from folders.files.errors import (
    EntryExistsError,
    EntryKindError,
    EntryNotFoundError,
    FilesError,
    StorageAccessError,
)
from sshserver.data_folders import DataFolders, normal_path
from sshserver.open_files import OpenFile

logger = logging.getLogger(__name__)

SFTP_VERSION: Final = 3
BLOCK_BYTES: Final = 4096  # in which `df` counts
MAX_TIME: Final = 2**32 - 1  # seconds since 1970 that version 3 can carry
FOLDER_MODE: Final = stat.S_IFDIR | 0o755
_FLAGS: Final = {FXF_APPEND: os.O_APPEND, FXF_CREAT: os.O_CREAT, FXF_EXCL: os.O_EXCL, FXF_TRUNC: os.O_TRUNC}
_ALL_FREE: Final = 2**40  # bytes, and files, that `df` shows as left where there is no limit

Result = TypeVar("Result")


class DataSftpServer(asyncssh.SFTPServer):
    """Passes each request on to DataFolders in a thread of the executor, one at a time.

    `show` shows a sentence to the user, since OpenSSH's client hides the messages of failures; `drain` waits until the
    client has taken what was sent to it, so that unread answers do not pile up.
    """

    def __init__(
        self,
        channel: "asyncssh.SSHServerChannel[bytes]",
        folders: DataFolders,
        executor: Executor,
        show: Callable[[str], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(channel)
        self._folders = folders
        self._executor = executor
        self._show = show
        self._drain = drain
        self._shown: set[str] = set()
        self._opened: dict[int, OpenFile] = {}
        self._has_ended = False

    async def end(self) -> None:
        """Close what the client has left open, after the operation that is under way."""
        self._has_ended = True
        for file in list(self._opened.values()):
            await asyncio.get_running_loop().run_in_executor(self._executor, _guarded, self._folders.files.close, file)

    def format_user(self, uid: int | None) -> str:
        """Return the name for listings: this machine's own users are none of the client's business."""
        return "work" if uid == CONTAINER_UID else str(uid)

    def format_group(self, gid: int | None) -> str:
        """Return the name for listings; see format_user."""
        return "work" if gid == CONTAINER_GID else str(gid)

    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        """Open a regular file."""
        access = {FXF_READ: os.O_RDONLY, FXF_WRITE: os.O_WRONLY, FXF_READ | FXF_WRITE: os.O_RDWR}
        flags = access.get(pflags & (FXF_READ | FXF_WRITE), os.O_RDONLY)
        flags |= sum(flag for wanted, flag in _FLAGS.items() if pflags & wanted)
        return await self._do(self._open, _text(path), flags, attrs.permissions)

    async def close(self, file_obj: object) -> None:
        """Close a file."""
        file = _file(file_obj)
        await self._do(self._folders.files.close, file)
        self._opened.pop(id(file), None)

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        """Return a part of a file."""
        await self._drain()
        return await self._do(self._folders.files.read, _file(file_obj), offset, size)

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        """Write a part of a file."""
        await self._do(self._folders.files.write, _file(file_obj), offset, data)
        return len(data)

    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        """Return the attributes of an entry itself."""
        await self._drain()
        return _attributes(await self._do(self._folders.status, _text(path)))

    stat = lstat  # no symbolic link is followed

    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        """Return the attributes of an open file."""
        return _attributes(await self._do(self._folders.files.status, _file(file_obj)))

    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Set length, permissions and times."""
        self._refuse_owner(attrs)
        await self._do_change(self._folders.change, _text(path), attrs)

    lsetstat = setstat  # nothing of a symbolic link can be set

    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        """Set length, permissions and times of an open file."""
        self._refuse_owner(attrs)
        await self._do_change(self._folders.files.change, _file(file_obj), attrs)

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        """Yield the entries of a directory."""
        for name, status in await self._do(self._folders.scan, _text(path)):
            yield asyncssh.SFTPName(os.fsencode(name), attrs=_attributes(status))
            await self._drain()

    async def remove(self, path: bytes) -> None:
        """Remove a file."""
        await self._do(lambda: self._folders.remove(_text(path), is_directory=False))

    async def rmdir(self, path: bytes) -> None:
        """Remove an empty directory."""
        await self._do(lambda: self._folders.remove(_text(path), is_directory=True))

    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Make a directory."""
        await self._do(self._folders.make_directory, _text(path))

    async def realpath(self, path: bytes) -> bytes:
        """Return the path from the top."""
        return os.fsencode(normal_path(_text(path)))

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Move an entry to where nothing is."""
        await self._do(lambda: self._folders.move(_text(oldpath), _text(newpath), replace=False))

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Move an entry, replacing a file."""
        await self._do(lambda: self._folders.move(_text(oldpath), _text(newpath), replace=True))

    async def readlink(self, path: bytes) -> bytes:
        """Return what a symbolic link says."""
        return os.fsencode(await self._do(self._folders.read_link, _text(path)))

    async def symlink(self, oldpath: bytes, newpath: bytes) -> NoReturn:
        """Refuse."""
        self._refuse("No symbolic links can be made over SFTP; make them in a session.")

    async def link(self, oldpath: bytes, newpath: bytes) -> NoReturn:
        """Refuse."""
        self._refuse("No hard links can be made over SFTP; make them in a session.")

    async def statvfs(self, path: bytes) -> asyncssh.SFTPVFSAttrs:
        """Return the owner's quota on the folder's storage root as a file system."""
        use = await self._do(self._folders.use, _text(path))
        left_bytes = _ALL_FREE if use.left_bytes is None else use.left_bytes
        left_files = _ALL_FREE if use.left_files is None else use.left_files
        free, used = left_bytes // BLOCK_BYTES, -(-use.used_bytes // BLOCK_BYTES)
        return asyncssh.SFTPVFSAttrs(
            bsize=BLOCK_BYTES,
            frsize=BLOCK_BYTES,
            blocks=used + free,
            bfree=free,
            bavail=free,
            files=use.used_files + left_files,
            ffree=left_files,
            favail=left_files,
            namemax=255,
        )

    async def fstatvfs(self, file_obj: object) -> NoReturn:
        """Refuse: clients ask by path."""
        raise asyncssh.SFTPOpUnsupported("Ask by path.")

    async def fsync(self, file_obj: object) -> None:
        """Have the disk take what was written."""
        await self._do(self._folders.files.flush, _file(file_obj))

    def _open(self, path: str, flags: int, permissions: int | None) -> OpenFile:
        """Open a file, in a thread: `end` finds it, or has run already where the client disconnected meanwhile."""
        file = self._folders.open(path, flags, permissions)
        self._opened[id(file)] = file
        if self._has_ended:
            self._folders.files.close(file)
        return file

    async def _do_change(self, change: Callable[..., None], target: object, attrs: asyncssh.SFTPAttrs) -> None:
        times = None
        if attrs.atime is not None and attrs.mtime is not None:
            times = (int(attrs.atime) * 10**9, int(attrs.mtime) * 10**9)
        await self._do(lambda: change(target, length=attrs.size, mode=attrs.permissions, times_ns=times))

    async def _do(self, operation: Callable[..., Result], *arguments: Any) -> Result:
        """Return the result of a blocking operation. Raises SFTPError."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, _guarded, operation, *arguments)
        except EntryNotFoundError as error:
            raise asyncssh.SFTPNoSuchFile(str(error)) from error
        except EntryExistsError as error:
            raise asyncssh.SFTPFailure(str(error)) from error
        except (FolderAccessError, EntryKindError, StorageAccessError) as error:
            self._show_once(str(error))
            raise asyncssh.SFTPPermissionDenied(str(error)) from error
        except (FolderError, FilesError) as error:
            self._show_once(str(error))
            raise asyncssh.SFTPFailure(str(error)) from error
        except DatabaseError as error:
            logger.warning("SFTP: the database does not answer: %s", error)
            raise asyncssh.SFTPFailure("The platform's database does not answer; try again in a moment.") from error

    def _refuse_owner(self, attrs: asyncssh.SFTPAttrs) -> None:
        if attrs.uid not in (None, CONTAINER_UID) or attrs.gid not in (None, CONTAINER_GID):
            self._refuse("The owner of files cannot be changed.")

    def _refuse(self, message: str) -> NoReturn:
        self._show_once(message)
        raise asyncssh.SFTPPermissionDenied(message)

    def _show_once(self, message: str) -> None:
        if message not in self._shown and len(self._shown) < 100:
            self._shown.add(message)
            self._show(message)


def _guarded(operation: Callable[..., Result], *arguments: Any) -> Result:
    """Call the operation, and give the thread's database connection back."""
    try:
        return operation(*arguments)
    finally:
        close_old_connections()


def _text(path: bytes) -> str:
    return os.fsdecode(path)


def _file(file_obj: object) -> OpenFile:
    if not isinstance(file_obj, OpenFile):
        raise asyncssh.SFTPInvalidHandle("This is not a file.")
    return file_obj


def _attributes(status: os.stat_result | None) -> asyncssh.SFTPAttrs:
    """Return what version 3 tells of a status; None is a directory of which nothing is known."""
    if status is None:
        return asyncssh.SFTPAttrs(permissions=FOLDER_MODE, uid=CONTAINER_UID, gid=CONTAINER_GID)
    return asyncssh.SFTPAttrs(
        size=status.st_size,
        uid=_in_sessions(status.st_uid, os.geteuid(), CONTAINER_UID),
        gid=_in_sessions(status.st_gid, os.getegid(), CONTAINER_GID),
        permissions=status.st_mode,
        nlink=status.st_nlink,
        atime=_time(status.st_atime),
        mtime=_time(status.st_mtime),
    )


def _in_sessions(number: int, own: int, container: int) -> int:
    """Return the id that an owner has in sessions: this process' own is the container user's, root's is root's."""
    return container if number == own != 0 else number


def _time(seconds: float) -> int:
    return int(min(max(seconds, 0), MAX_TIME))
