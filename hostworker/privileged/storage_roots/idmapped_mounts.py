"""Storage roots mounted with other ids: what belongs to the platform's user on the disk is the container user's there.

An id-mapped mount (mount_setattr(2)) exchanges the two users, and the two groups; every other id stays. It is of the
root's own directory, without what is mounted below it, and lies where nobody but root gets to. Containers that mount a
folder from there keep the mapping. Needs root, Linux 5.12 or newer, and a file system that knows it.
"""

import ctypes
import errno
import fcntl
import os
import platform
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from folders.files.descriptors import CONTAINER_GID, CONTAINER_UID, Owner
from folders.files.roots import MARKER, owner_at

AREA: Final = Path("/run/gpuplatform-roots")  # of root alone
IN_USE: Final = "lock"  # ending of the file of a mount that all who need it have locked; opened by who is `_alone`
IDS: Final = 2**32 - 1  # that there are; the last is none
# linux/mount.h, linux/fcntl.h; the numbers of these system calls are the same on every architecture
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_MOUNT_SETATTR: Final = 442
_CLONE: Final = 1
_CLOEXEC: Final = os.O_CLOEXEC
_FROM_DESCRIPTOR: Final = 4  # MOVE_MOUNT_F_EMPTY_PATH
_EMPTY_PATH: Final = 0x1000
_HERE: Final = -100  # AT_FDCWD
_IDMAP: Final = 0x100000
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
# In a user namespace of its own, it answers each line with the same line, and ends with its input.
_NAMESPACE: Final = ("unshare", "--user", "cat")
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """`struct mount_attr`."""

    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("namespace", ctypes.c_uint64),
    )


class IdmappedMountError(OSError):
    """The root cannot be mounted with other ids; the message is a sentence."""


class IdmappedMounts:
    """The roots that this process needs mounted with other ids. Safe to use from many threads.

    Other processes may need the same mount: the last of them takes it away.
    """

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # by the root's key: the open lock file
        self._lock = threading.Lock()

    def hold(self, root: Path, key: str) -> Path:
        """Return where the root with this key is mounted so, after mounting it unless it is.

        Raises IdmappedMountError where it cannot be. Call it again whenever the root may have become another.
        """
        try:
            owner = owner_at(root, key)
            with self._lock:
                self._prepare_area()
                with _alone():
                    if key not in self._held:
                        self._held[key] = _locked(key, fcntl.LOCK_SH)
                    if not _is_in_place(root, AREA / key):
                        _take_away(AREA / key)
                        _mount(root, AREA / key, owner)
        except IdmappedMountError:
            raise
        except OSError as error:
            raise IdmappedMountError(f"{root} cannot be mounted for sessions, with other ids: {error}.") from error
        return AREA / key

    def release(self, key: str) -> None:
        """Need the mount of the root with this key no more, whoever mounted it; where none needs it, take it away."""
        with self._lock:
            if not (AREA / key).exists():
                return
            with _alone():
                if (lock := self._held.pop(key, None)) is not None:
                    os.close(lock)
                with suppress(BlockingIOError):
                    lock = _locked(key, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _take_away(AREA / key)
                    os.unlink(_lock_path(key))
                    os.close(lock)

    def release_all(self) -> None:
        """Need none any more."""
        for key in list(self._held):
            self.release(key)

    @staticmethod
    def _prepare_area() -> None:
        AREA.mkdir(mode=0o700, exist_ok=True)
        AREA.chmod(0o700)


def id_map(inside: int, outside: int) -> str:
    """Return the lines of a map that exchanges two ids and keeps all others; see user_namespaces(7)."""
    low, high = sorted((inside, outside))
    if low == high:
        return f"0 0 {IDS}"
    ranges = [(0, 0, low), (low, high, 1), (low + 1, low + 1, high - low - 1), (high, low, 1)]
    ranges.append((high + 1, high + 1, IDS - high - 1))
    return "\n".join(f"{first} {other} {length}" for first, other, length in ranges if length)


def _is_in_place(root: Path, point: Path) -> bool:
    """Return whether the very directory of the root is mounted at `point`, for its owner of today."""
    try:
        found, wanted = os.stat(point), os.stat(root)
        marker = os.stat(point / MARKER, follow_symlinks=False)
    except FileNotFoundError:
        return False
    is_same = (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
    return is_same and (marker.st_uid, marker.st_gid) == (CONTAINER_UID, CONTAINER_GID)


def _mount(root: Path, point: Path, owner: Owner) -> None:
    point.mkdir(mode=0o000, exist_ok=True)
    tree = _call(_OPEN_TREE, _HERE, os.fsencode(root), _CLONE | _CLOEXEC)
    try:
        with _namespace(owner) as namespace:
            attributes = _Attributes(set=_IDMAP, namespace=namespace)
            size = ctypes.c_size_t(ctypes.sizeof(attributes))
            _call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, ctypes.byref(attributes), size)
        _call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(point), _FROM_DESCRIPTOR)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            raise IdmappedMountError(_unsupported(root, owner)) from error
        raise
    finally:
        os.close(tree)


def _unsupported(root: Path, owner: Owner) -> str:
    return (
        f"Files in {root} belong to user id {owner.uid}, and sessions cannot have them as their own user's: its file "
        f"system, or Linux {platform.release()}, has no id-mapped mounts."
    )


@contextmanager
def _namespace(owner: Owner) -> Iterator[int]:
    """Give a descriptor of a user namespace that exchanges the owner and the container's user to a block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(_NAMESPACE, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        with suppress(BrokenPipeError):
            process.stdin.write("in it\n")
        if not process.stdout.readline():
            raise IdmappedMountError(f"No user namespace can be made on this host: {process.stderr.read().strip()}.")
        try:
            Path(f"/proc/{process.pid}/uid_map").write_text(id_map(owner.uid, CONTAINER_UID))
            Path(f"/proc/{process.pid}/gid_map").write_text(id_map(owner.gid, CONTAINER_GID))
        except OSError as error:
            raise IdmappedMountError(f"Ids cannot be mapped on this host: {error.strerror}.") from error
        namespace = os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield namespace
        finally:
            os.close(namespace)


def _take_away(point: Path) -> None:
    """Detach all that is mounted there: containers keep what they have of it."""
    while _libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOENT):
        raise OSError(number, os.strerror(number), str(point))
    with suppress(FileNotFoundError):
        point.rmdir()


@contextmanager
def _alone() -> Iterator[None]:
    """Have no other process mount or take away meanwhile."""
    lock = _locked("all", fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(lock)


def _locked(name: str, how: int) -> int:
    """Return a descriptor whose closing unlocks. Raises BlockingIOError."""
    lock = os.open(_lock_path(name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, how)
    except OSError:
        os.close(lock)
        raise
    return lock


def _lock_path(name: str) -> Path:
    return AREA / f"{name}.{IN_USE}"


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
