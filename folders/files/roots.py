"""Storage roots as one machine finds them: the marker file, whether it answers, its space. No Django."""

import errno
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from folders.files.descriptors import CONTAINER_USER, Owner, rename_to_free_name
from folders.files.kernel_quota import KernelQuota, support_of

MARKER: Final = ".gpuplatform-root"
DRAFT: Final = f"{MARKER}."  # what a process leaves that dies before its marker file is whole begins with this
MAX_MARKER_BYTES: Final = 200
FRESH: Final = frozenset({"lost+found"})  # what a new file system has in it


@dataclass(frozen=True, slots=True, kw_only=True)
class RootState:
    """What was found at the path of a storage root; the sizes are None where it does not answer."""

    problem: str = ""  # a sentence; "" where the root is there and can be written to
    total_bytes: int | None = None
    free_bytes: int | None = None
    free_files: int = 0  # inodes; 0 where their number is not fixed
    device: int = 0  # st_dev
    quota: KernelQuota = KernelQuota.NONE
    owner: Owner = CONTAINER_USER  # of what is made on it


class NotEmptyError(ValueError):
    """A directory that is to become a storage root has something in it; the message names it."""


def write_marker(path: Path, key: str) -> None:
    """Make an empty directory the storage root with this key; a directory that is it already is left as it is.

    Raises NotEmptyError where anything else is in it, and OSError where it does not exist or cannot be written to.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if (made := _marker(folder)) and made.key == key:
            return
        found = sorted(name for name in set(os.listdir(folder)) - FRESH if not name.startswith(DRAFT))
        if found:
            raise NotEmptyError(f"{path} is not empty: it has {found[0]!r} in it.")
        draft = f"{DRAFT}{secrets.token_hex(8)}"
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444, dir_fd=folder)
        with os.fdopen(file, "w") as marker:
            marker.write(f"{key}\n")
            marker.flush()
            os.fsync(file)
        rename_to_free_name(folder, draft, folder, MARKER)
        os.fsync(folder)
    finally:
        os.close(folder)


def examine(path: Path, key: str) -> RootState:
    """Return the state of the root with this key at `path`. Does not return while its file system does not answer."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return RootState(problem=_cannot_open(path, error))
    try:
        return _examined(folder, path, key)
    except OSError as error:
        return RootState(problem=f"{path} cannot be read: {os.strerror(error.errno or 0)}.")
    finally:
        os.close(folder)


def _examined(folder: int, path: Path, key: str) -> RootState:
    found = _marker(folder)
    if found is None:
        return RootState(problem=f"{path} has no marker file {MARKER}: its file system may not be mounted.")
    if found.key != key:
        return RootState(problem=f"{path} is another storage root: the key in its marker file {MARKER} differs.")
    space = os.fstatvfs(folder)
    problem = ""
    if space.f_flag & os.ST_RDONLY:
        problem = f"{path} is mounted read-only."
    elif not _is_users(found.owner):
        problem = (
            f"{path} belongs to user id {found.owner.uid}, and the platform runs as user id {os.geteuid()} here: it "
            "has to be the same user wherever it uses the root."
        )
    elif not os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=True):
        problem = f"{path} cannot be written to by the platform's user (id {os.geteuid()})."
    return RootState(
        problem=problem,
        total_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
        free_files=space.f_favail,
        device=os.fstat(folder).st_dev,
        quota=support_of(folder),
        owner=found.owner,
    )


def owner_at(path: Path, key: str) -> Owner:
    """Return to whom files of the root with this key belong. Raises OSError where there is no such root."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = _marker(folder)
    finally:
        os.close(folder)
    if found is None or found.key != key:
        raise FileNotFoundError(errno.ENOENT, f"{path} is not the storage root {key}")
    return found.owner


def _is_users(owner: Owner) -> bool:
    """Return whether what this process makes gets the owner: to the container's user, a file server may give it."""
    return owner.is_container_user or os.geteuid() in (0, owner.uid)


class _Marker(NamedTuple):
    key: str
    owner: Owner


def _marker(folder: int) -> _Marker | None:
    """Return what the marker file of the directory says; None without one."""
    try:
        file = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    with os.fdopen(file, "rb") as marker:
        text = marker.read(MAX_MARKER_BYTES).decode(errors="replace").strip()
        return _Marker(text, Owner.by(os.fstat(file)))


def _cannot_open(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"The directory {path} does not exist."
    return f"{path} cannot be opened: {os.strerror(error.errno or 0)}."


class RootProbe:
    """Examines one root in a thread of its own, so that a file system that hangs holds up nobody.

    Safe to use from many threads. At most one thread is waiting for the file system at any time; it is a daemon, so
    that the process can end.
    """

    def __init__(self, path: Path, key: str, look: Callable[[Path, str], RootState] = examine) -> None:
        self._path, self._key, self._look = path, key, look
        self._lock = threading.Lock()  # guards what follows
        self._state: RootState | None = None
        self._found_at = 0.0
        self._begun_at = 0.0
        self._done: threading.Event | None = None  # of the examination under way

    def begin(self, max_age_seconds: float = 0.0) -> None:
        """Start an examination, unless one is under way or the last state is not older than this."""
        with self._lock:
            is_fresh = self._state is not None and time.monotonic() - self._found_at <= max_age_seconds
            if self._done is not None or is_fresh:
                return
            done = threading.Event()
            threading.Thread(target=self._run, args=(done,), name=f"root {self._path}", daemon=True).start()
            self._done, self._begun_at = done, time.monotonic()

    def state(self, timeout_seconds: float, max_age_seconds: float = 0.0) -> RootState:
        """Return the state, waiting until the examination under way, or a new one, has lasted `timeout_seconds`."""
        self.begin(max_age_seconds)
        with self._lock:
            done, left = self._done, timeout_seconds - (time.monotonic() - self._begun_at)
        if done is None or done.wait(max(left, 0.0)):
            with self._lock:
                if self._state is not None:
                    return self._state
        return RootState(problem=f"{self._path} does not answer: the server of its file system may be away.")

    def _run(self, done: threading.Event) -> None:
        try:
            state = self._look(self._path, self._key)
        except Exception as error:  # so that the next call examines anew
            state = RootState(problem=f"{self._path} could not be examined: {error}.")
        with self._lock:
            self._state, self._found_at, self._done = state, time.monotonic(), None
        done.set()
