"""Visits and removes whole trees, however deep, with few open descriptors and without following symbolic links."""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from folders.files.descriptors import open_regular, readable, rename_to_free_name, translated

MAX_OPEN_LEVELS: Final = 64  # descriptors that one visit holds at most
CHECKPOINT_ENTRIES: Final = 1000
LINKS_WALKED: Final = 4  # names for each file, on the average, after which a walk with an end ends
BLOCK_BYTES: Final = 512  # of `st_blocks`, whatever the file system's own block size
REMOVAL_ROUNDS: Final = 100  # after which others get their turn


class Usage(NamedTuple):
    """What files and directories take: allocated bytes as `du` counts them, and their number."""

    bytes: int = 0
    files: int = 0
    is_partial: bool = False  # where this process may not look

    def __add__(self, other: object) -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(self.bytes + other.bytes, self.files + other.files, self.is_partial or other.is_partial)


@dataclass(slots=True)
class _Level:
    """A directory under way: name, descriptor unless given up, identity, and the directories in it still to visit."""

    name: str
    opened: int | None
    identity: tuple[int, int]
    path_bytes: int  # of the path from the start, with a slash behind it; 0 for the start itself
    pending: list[str] = field(default_factory=list)

    @property
    def descriptor(self) -> int:
        """The descriptor; raises OSError if it was given up."""
        if self.opened is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.opened


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """An entry of a tree; `path` and `open` are valid until the next one is asked for."""

    name: str
    status: os.stat_result
    _levels: list[_Level]  # of the walk: the start, and the directories down to this entry's

    @property
    def path(self) -> str:
        """Relative to the start of the walk."""
        return "/".join([*(level.name for level in self._levels[1:]), self.name])

    @property
    def path_bytes(self) -> int:
        """The length of `path`, which may be anything: a tree can be deeper than any path."""
        return self._levels[-1].path_bytes + len(os.fsencode(self.name))

    def open(self) -> int:
        """Return a descriptor of the regular file for reading; raises FilesError."""
        with translated(self.path):
            return open_regular(self._levels[-1].descriptor, self.name)

    def open_path(self) -> int:
        """Return an O_PATH descriptor of the entry itself, which the caller closes. Raises OSError."""
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.name, flags, dir_fd=self._levels[-1].descriptor)


class TreeWalk:
    """Iterates over all entries below an open directory, each directory before what is in it, without the start itself.

    What is removed meanwhile is left out, and so is the rest of a directory that was moved away meanwhile. What this
    process may not look at is left out too; `is_partial` then says so.
    """

    def __init__(self, start: int, max_path_bytes: int | None = None) -> None:
        """Directories whose path from the start is longer than `max_path_bytes` are not looked into."""
        self._levels: list[_Level] = []
        self._start = start
        self._max_path_bytes = max_path_bytes
        self.is_partial = False

    def __iter__(self) -> Iterator[WalkEntry]:
        try:
            yield from self._entries_of(os.dup(self._start), "")
            while self._levels:
                level = self._levels[-1]
                if level.pending:
                    name = level.pending.pop()
                    if (below := self._descend(level, name)) is not None:
                        yield from self._entries_of(below, name)
                else:
                    self._ascend()
        finally:
            for level in self._levels:
                if level.opened is not None:
                    os.close(level.opened)
            self._levels.clear()

    def _entries_of(self, opened: int, name: str) -> Iterator[WalkEntry]:
        status = os.fstat(opened)
        above_bytes = self._levels[-1].path_bytes if self._levels else 0
        path_bytes = above_bytes + len(os.fsencode(name)) + 1 if self._levels else 0
        level = _Level(name, opened, (status.st_dev, status.st_ino), path_bytes)
        self._levels.append(level)
        if len(self._levels) > MAX_OPEN_LEVELS and (upper := self._levels[-MAX_OPEN_LEVELS - 1]).opened is not None:
            os.close(upper.opened)
            upper.opened = None
        try:
            listed = readable(opened, os.O_RDONLY | os.O_DIRECTORY)
        except PermissionError:
            self.is_partial = True
            return
        except OSError:  # gone
            return
        try:
            with os.scandir(listed) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except PermissionError:
                        self.is_partial = True
                        continue
                    except OSError:
                        continue
                    found = WalkEntry(entry.name, status, self._levels)
                    if stat.S_ISDIR(status.st_mode) and self._is_wanted(found):
                        level.pending.append(entry.name)
                    yield found
        finally:
            os.close(listed)

    def _is_wanted(self, entry: WalkEntry) -> bool:
        return self._max_path_bytes is None or entry.path_bytes <= self._max_path_bytes

    def _descend(self, level: _Level, name: str) -> int | None:
        if level.opened is None:
            return None
        try:
            return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=level.opened)
        except PermissionError:
            self.is_partial = True
            return None
        except OSError:
            return None

    def _ascend(self) -> None:
        done = self._levels.pop()
        if done.opened is None:
            return
        try:
            if self._levels and self._levels[-1].opened is None:
                self._levels[-1].opened = _parent_of(done.opened, self._levels[-1].identity)
        finally:
            os.close(done.opened)


def _parent_of(opened: int, identity: tuple[int, int]) -> int | None:
    """Return a descriptor of the directory above, if it is the one with this identity; else None: it was moved away."""
    parent = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=opened)
    status = os.fstat(parent)
    if (status.st_dev, status.st_ino) == identity:
        return parent
    os.close(parent)
    return None


def usage_of(start: int, checkpoint: Callable[[], None] = lambda: None, most: int | None = None) -> Usage:
    """Return what all below an open directory takes; a file with several hard links counts once.

    The walk ends early once it has found `most` files, or LINKS_WALKED times as many names. `checkpoint` is called
    after every CHECKPOINT_ENTRIES entries; it may end the walk by an exception.
    """
    allocated, files = 0, 0
    seen: set[tuple[int, int]] = set()
    walk = TreeWalk(start)
    for visited, entry in enumerate(walk, 1):
        if visited % CHECKPOINT_ENTRIES == 0:
            checkpoint()
        if most is not None and (files >= most or visited > LINKS_WALKED * most):
            break
        status = entry.status
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
        allocated += status.st_blocks * BLOCK_BYTES
        files += 1
    return Usage(allocated, files, walk.is_partial)


class Removal:
    """Removes trees from an open directory, and counts what that frees; may be interrupted and repeated anywhere.

    The contents of a directory are unlinked or, if directories themselves, renamed to the area, so that no tree is too
    deep for it. What sessions exchange or take away meanwhile is left to the next look. Raises OSError, such as EACCES.
    """

    def __init__(self, area: int) -> None:
        self._area = area
        self.freed = Usage()
        self._removed = 0

    def run(self, max_entries: int) -> bool:
        """Remove about `max_entries` entries at most; return whether nothing is left."""
        self._removed = 0
        while self._removed < max_entries:
            names = _names(self._area, max_entries - self._removed)
            if not names:
                return True
            for name in names:
                self._remove(self._area, name, max_entries)
                if self._removed >= max_entries:
                    break
        return not _names(self._area, 1)

    def _remove(self, area: int, name: str, max_entries: int) -> None:
        """Remove the entry of an area, or one level of it if it is a directory."""
        if self._unlink(area, name):
            return
        try:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=area)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with suppress(PermissionError):  # of another user; removing from it may work all the same
                os.chmod(f"/proc/self/fd/{inner}", 0o700)
            for below in _names(inner, max(1, max_entries - self._removed)):
                if not self._unlink(inner, below):
                    self._move_up(inner, below, max_entries)
            status = os.fstat(inner)
        finally:
            os.close(inner)
        try:
            os.rmdir(name, dir_fd=area)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY):
                raise
        else:
            self._count(status)

    def _move_up(self, inner: int, name: str, max_entries: int) -> None:
        """Move a directory to the area. One in a subvolume that a session has made stays there, and is emptied."""
        try:
            rename_to_free_name(inner, name, self._area, secrets.token_hex(16))
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._remove(inner, name, max_entries)

    def _unlink(self, parent: int, name: str) -> bool:
        """Unlink the entry and return True; return False if it is a directory."""
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                return False
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            return True
        except IsADirectoryError:
            return False
        self._count(status)
        return True

    def _count(self, status: os.stat_result) -> None:
        self._removed += 1
        if stat.S_ISDIR(status.st_mode) or status.st_nlink <= 1:
            self.freed += Usage(status.st_blocks * BLOCK_BYTES, 1)


def in_rounds(remove: Callable[[], bool], checkpoint: Callable[[], None] = lambda: None) -> bool:
    """Call `remove` until nothing is left, REMOVAL_ROUNDS times at most; return whether nothing is left.

    A session may fill a directory as fast as it is emptied; that is not to hold up what others wait for.
    """
    for _ in range(REMOVAL_ROUNDS):
        checkpoint()
        if remove():
            return True
    return False


def _names(opened: int, most: int) -> list[str]:
    listed = readable(opened, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(listed) as entries:
            return [entry.name for entry, _ in zip(entries, range(most), strict=False)]
    finally:
        os.close(listed)
