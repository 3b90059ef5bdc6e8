"""Where the packages of a tree are: an environment for each state of what it names, used again by later sessions.

Environments are in the owner's folder `.environments`, which is mounted in all sessions of theirs and of nobody else's;
without it in the tree. So what one user's code writes into one never reaches another user.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from imports.fetcher.job import FetchJob

FOLDER: Final = ".environments"  # in the home folder; the platform makes it
VENV: Final = ".venv"
LOCK: Final = ".venv.lock"
STAMP: Final = "gpuplatform-stamp"  # in an environment that is whole: of what, and how many bytes it has
DOWNLOADS: Final = "downloads"  # uv's cache
MAX_ENVIRONMENTS: Final = 20
MAX_BYTES: Final = 20 * 2**30
MAX_DOWNLOADED_BYTES: Final = 10 * 2**30
DAY: Final = 24 * 3600
USED_DAYS: Final = 7  # in which a session that began with it may still run, so that it stays
LIFETIME_DAYS: Final = 30  # since it was last begun with


class Place(NamedTuple):
    """Where the environment of a tree is, and the folder of environments that it is in, if in one."""

    venv: Path
    folder: Path | None = None


def place_of(tree: Path, stamp: str) -> Place:
    """Return where the environment of this state is to be. One that a tree has of its own stays there."""
    folder, own = Path.home() / FOLDER, tree / VENV
    is_usable = folder.is_dir() and not folder.is_symlink() and os.access(folder, os.W_OK)
    if is_usable and (own.is_symlink() or not own.exists()):
        return Place(folder / stamp, folder)
    if own.is_symlink():  # to an environment of a session that had the folder
        own.unlink()
    return Place(own)


def is_whole(venv: Path, stamp: str) -> bool:
    """Return whether the environment has all of this state."""
    try:
        return (venv / STAMP).read_text().partition("\n")[0] == stamp
    except (OSError, ValueError):
        return False


def finish(venv: Path, stamp: str) -> None:
    """Mark an environment as whole."""
    (venv / STAMP).write_text(f"{stamp}\n{_size(venv)}\n")


def use(place: Place, tree: Path) -> None:
    """Have the tree show the environment, and remember that a session begins with it now."""
    os.utime(place.venv / STAMP)
    own = tree / VENV
    if place.folder is None or (own.is_symlink() and os.readlink(own) == str(place.venv)):
        return
    made = tree / f"{VENV}.{os.getpid()}"
    made.unlink(missing_ok=True)
    made.symlink_to(place.venv)
    os.replace(made, own)


@contextmanager
def locked(tree: Path, place: Place, job: FetchJob) -> Iterator[None]:
    """Keep other sessions that have the tree or folder from installing the same meanwhile, until the process ends."""
    path = place.folder / _lock_name(place.venv) if place.folder else tree / LOCK
    lock = _open_lock(path)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            job.show("Waits for another session that installs packages")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if place.folder is None:
            _exclude_lock(tree)
        yield
    finally:
        os.close(lock)


def trim(place: Place) -> bool:
    """Remove what was not used for long, and what is too much; return whether there are too many downloads."""
    if place.folder is None:
        return False
    now, total_bytes, count = time.time(), 0, 0
    known = [path for path in place.folder.iterdir() if re.fullmatch("[0-9a-f]{64}", path.name)]
    used = [(used_at, path) for path in known if (used_at := _used_at(path)) is not None]
    for used_at, path in sorted(used, reverse=True):
        size, age = _known_size(path), (now - used_at) / DAY
        is_too_much = count + 1 > MAX_ENVIRONMENTS or total_bytes + size > MAX_BYTES
        if path != place.venv and (age > LIFETIME_DAYS or (is_too_much and age > USED_DAYS)) and _remove(path):
            continue
        total_bytes, count = total_bytes + size, count + 1
    return _size(place.folder / DOWNLOADS) > MAX_DOWNLOADED_BYTES


def _remove(venv: Path) -> bool:
    """Remove an environment unless a session installs into it now; return whether it is gone."""
    lock = _open_lock(venv.parent / _lock_name(venv))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (venv / STAMP).unlink(missing_ok=True)  # half an environment is none
        shutil.rmtree(venv)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _lock_name(venv: Path) -> str:
    return f".lock-{venv.name[0]}"  # few files that stay, rather than one for each environment that there ever was


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _exclude_lock(tree: Path) -> None:
    """Have git not show the lock's file, where the tree is a repository."""
    excluded = tree / ".git" / "info" / "exclude"
    if (tree / ".git").is_dir() and not (excluded.is_file() and LOCK in excluded.read_text().splitlines()):
        excluded.parent.mkdir(exist_ok=True)
        with excluded.open("a") as file:
            file.write(f"{LOCK}\n")


def _used_at(venv: Path) -> float | None:
    """Return when an environment was begun with; None where another session has just removed it."""
    for path in (venv / STAMP, venv):
        with suppress(FileNotFoundError):
            return path.lstat().st_mtime
    return None


def _known_size(venv: Path) -> int:
    try:
        return int((venv / STAMP).read_text().splitlines()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _size(directory: Path) -> int:
    """Return the bytes of all files below a directory, without those that other sessions remove meanwhile."""
    size = 0
    for at, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.lstat(os.path.join(at, name)).st_size
    return size
