"""The files of one folder: list, read, write, move, trash. No operation leaves it, whatever sessions do."""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from folders.files.descriptors import (
    Owner,
    directory,
    make_directory,
    open_directory,
    open_or_make_directory,
    open_regular,
    readable,
    rename_to_free_name,
    status_of,
    translated,
)
from folders.files.direct import DirectFiles
from folders.files.entries import EntryKind, FolderEntry, Listing, Order, entry_from
from folders.files.errors import (
    ContentChangedError,
    EntryKindError,
    EntryNotFoundError,
    FileTooLargeError,
    NotTextError,
)
from folders.files.paths import MAX_PATH_BYTES, display, entry_parts_of, new_parts_of, parts_of
from folders.files.staging import STAGING, Staging
from folders.files.trash import TRASH, FolderTrash
from folders.files.walk import TreeWalk, Usage, WalkEntry, usage_of

FILES: Final = "files"  # the directory that sessions mount
LOCK: Final = "lock"  # serializes the platform's own read-compare-write
MAX_LISTED: Final = 100_000  # entries of a directory that are ever read for a listing
MAX_TEXT_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class TextFile:
    """The content of a text file, and the tag by which a later save tells that it is still the same."""

    text: str
    etag: str  # in quotes; of the content


class FolderFiles:
    """The files of one folder, by descriptors of its directories. A context manager; not for several threads at once.

    Paths are relative to the folder, "" is the folder itself; `paths.parts_of` says what is refused. All methods raise
    FilesError with a message for the user.
    """

    def __init__(self, folder: int) -> None:
        """Take over `folder`, an O_PATH descriptor of the folder's directory, which `close` closes."""
        self._folder = folder
        self._opened = [folder]
        try:
            with translated(""):
                self._files = open_directory(folder, (FILES,))
            self._opened.append(self._files)
            self._owner = Owner.by(os.fstat(folder))
            self.trash = FolderTrash(folder, self._files, self._owner)
            self.staging = Staging(folder, self._files, self._owner)
            self.direct = DirectFiles(self._files, self._owner)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors; files that `open_file` and `staging.open` returned stay open."""
        while self._opened:
            os.close(self._opened.pop())

    def list(
        self,
        path: str = "",
        *,
        order: Order = Order.NAME,
        descending: bool = False,
        offset: int = 0,
        limit: int | None = None,
    ) -> Listing:
        """Return entries of a directory, directories first; `offset` and `limit` choose a part of the sorted list.

        By name only that part is looked at more closely than by name and kind.
        """
        with directory(self._files, parts_of(path)) as opened, translated(path):
            names, is_complete = _names_of(opened)
            end = None if limit is None else offset + limit
            if order == Order.NAME:
                files_last = sorted(names, key=lambda item: (item[0].casefold(), item[0]), reverse=descending)
                chosen = [name for name, _ in sorted(files_last, key=lambda item: not item[1])[offset:end]]
                entries = _entries_of(opened, chosen)
            else:
                entries = _sorted(_entries_of(opened, [name for name, _ in names]), order, descending)[offset:end]
        return Listing(entries, len(names), is_complete)

    def stat(self, path: str) -> FolderEntry:
        """Return the entry at `path`, a symbolic link as such; for "" that of the folder, whose name is empty."""
        parts = parts_of(path)
        if not parts:
            with translated(""):
                return entry_from("", os.fstat(self._files))
        with directory(self._files, parts[:-1]) as parent, translated(path):
            return entry_from(parts[-1], status_of(parent, parts[-1]))

    def open_file(self, path: str) -> int:
        """Return a descriptor of the regular file for reading, which the caller closes."""
        parts = entry_parts_of(path)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            return open_regular(parent, parts[-1])

    def mkdir(self, path: str, *, parents: bool = False) -> FolderEntry:
        """Make a directory and return it; with `parents` also those above it, and none if it is there already."""
        parts = new_parts_of(path)
        if parents:
            with translated(path):
                opened = open_or_make_directory(self._files, parts, self._owner)
            try:
                return entry_from(parts[-1], os.fstat(opened))
            finally:
                os.close(opened)
        with directory(self._files, parts[:-1]) as parent, translated(path):
            make_directory(parent, parts[-1], self._owner)
            return entry_from(parts[-1], status_of(parent, parts[-1]))

    def move(self, source: str, target: str, *, replace: bool = False) -> FolderEntry:
        """Move or rename an entry to the path `target`, whose directory exists, and return it there.

        `replace` replaces a file that has the path, never a directory with something in it.
        """
        old, new = entry_parts_of(source), entry_parts_of(target)
        if new[-1] != old[-1]:
            new = new_parts_of(target)
        with directory(self._files, old[:-1]) as old_parent, directory(self._files, new[:-1]) as new_parent:
            with translated(source):
                status_of(old_parent, old[-1])
            with translated(target):
                if replace:
                    os.rename(old[-1], new[-1], src_dir_fd=old_parent, dst_dir_fd=new_parent)
                else:
                    rename_to_free_name(old_parent, old[-1], new_parent, new[-1])
                return entry_from(new[-1], status_of(new_parent, new[-1]))

    def walk(self, path: str = "") -> Iterator[WalkEntry]:
        """Iterate over the entries below a directory, each directory before what is in it, in no other order.

        What is in directories whose own path is longer than MAX_PATH_BYTES is left out.
        """
        with directory(self._files, parts_of(path)) as opened:
            yield from TreeWalk(opened, MAX_PATH_BYTES)

    def usage(self, checkpoint: Callable[[], None] = lambda: None, most: int | None = None) -> Usage:
        """Return what files and trash take, without uploads under way. Takes as long as `du`; see `walk.usage_of`.

        Of files, trash and what is being removed, each is walked until `most` files are found.
        """
        total = Usage()
        for parts in ((FILES,), (TRASH, "files"), (TRASH, "expunged")):
            with directory(self._folder, parts) as opened:
                total += usage_of(opened, checkpoint, most)
        return total

    def read_text(self, path: str) -> TextFile:
        """Return the content of a file of at most MAX_TEXT_BYTES in UTF-8."""
        opened = self.open_file(path)
        with open(opened, "rb") as file, translated(path):
            content = file.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise FileTooLargeError(f"Only files up to {MAX_TEXT_BYTES // 2**20} MiB can be edited: {display(path)}")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise NotTextError(f"This is not text in UTF-8: {display(path)}") from error
        if "\0" in text:
            raise NotTextError(f"This is not text: {display(path)}")
        return TextFile(text, _etag(content))

    def write_text(self, path: str, text: str, *, if_match: str | None) -> TextFile:
        """Save a text file at once or not at all, and return it.

        `if_match` is the etag of what the caller has read, or "*" for any content; None makes a new file. Raises
        ContentChangedError if the file is another by now or is gone, EntryExistsError if a new one is there already.
        """
        content = _encoded(text)
        with self._lock():
            if if_match is not None:
                self._require_unchanged(path, if_match)
            name = f"text-{secrets.token_hex(8)}"
            try:
                with open(self.staging.open(name, create=True), "wb") as file, translated(path):
                    file.write(content)
                self.staging.publish(name, path, replace=if_match is not None)
            finally:
                self.staging.remove(name)
        return TextFile(text, _etag(content))

    def _require_unchanged(self, path: str, etag: str) -> None:
        try:
            current = self.stat(path) if etag == "*" else self.read_text(path)
        except EntryNotFoundError as error:
            raise ContentChangedError(f"The file is not there any more: {display(path)}") from error
        if isinstance(current, TextFile) and current.etag != etag:
            raise ContentChangedError(f"The file was changed since you opened it: {display(path)}")
        if isinstance(current, FolderEntry) and current.kind != EntryKind.FILE:
            raise EntryKindError(f"This is not a file: {display(path)}")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the folder's lock, which processes of the platform take around read-compare-write."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with translated(""):
            opened = os.open(LOCK, flags, 0o600, dir_fd=self._folder)
        try:
            with translated(""):
                fcntl.flock(opened, fcntl.LOCK_EX)
            yield
        finally:
            os.close(opened)


def make_layout(folder: int) -> None:
    """Make the directories of a folder in its directory, those that are missing. Raises OSError."""
    for parts in ((FILES,), (STAGING,), *((TRASH, name) for name in ("files", "info", "expunged"))):
        os.close(open_or_make_directory(folder, parts, Owner.by(os.fstat(folder))))


def _names_of(opened: int) -> tuple[list[tuple[str, bool]], bool]:
    """Return (name, whether it is a directory) of at most MAX_LISTED entries, and whether those are all."""
    listed = readable(opened, os.O_RDONLY | os.O_DIRECTORY)
    names: list[tuple[str, bool]] = []
    try:
        with os.scandir(listed) as entries:
            for entry in entries:
                if len(names) == MAX_LISTED:
                    return names, False
                names.append((entry.name, _is_directory(entry)))
    finally:
        os.close(listed)
    return names, True


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _entries_of(opened: int, names: list[str]) -> list[FolderEntry]:
    """Return the entries of these names, without those that are gone by now."""
    entries = []
    for name in names:
        try:
            entries.append(entry_from(name, status_of(opened, name)))
        except FileNotFoundError:
            continue
    return entries


def _sorted(entries: list[FolderEntry], order: Order, descending: bool) -> list[FolderEntry]:
    by_name = sorted(entries, key=lambda entry: (entry.name.casefold(), entry.name))
    if order == Order.SIZE:
        by_name.sort(key=lambda entry: entry.length_bytes, reverse=descending)
    else:
        by_name.sort(key=lambda entry: entry.modified_at, reverse=descending)
    return sorted(by_name, key=lambda entry: entry.kind != EntryKind.DIRECTORY)


def _encoded(text: str) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise NotTextError("The text has characters that UTF-8 cannot carry.") from error
    if len(content) > MAX_TEXT_BYTES:
        raise FileTooLargeError(f"Only files up to {MAX_TEXT_BYTES // 2**20} MiB can be edited.")
    return content


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'
