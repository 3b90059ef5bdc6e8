"""What is told about an entry of a directory."""

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from folders.files import paths


class EntryKind(StrEnum):
    """Kinds of entries, as far as the platform tells them apart."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"  # shown, moved and deleted as such; never followed
    OTHER = "other"  # a device, FIFO or socket; never opened


class Order(StrEnum):
    """By what a listing is sorted."""

    NAME = "name"
    SIZE = "size"
    MODIFIED = "modified"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEntry:
    """A file, directory or anything else in a directory."""

    name: str  # bytes that are not UTF-8 are surrogates, as `os.fsdecode` has them
    kind: EntryKind
    length_bytes: int  # 0 unless it is a file
    modified_at: datetime
    etag: str  # in quotes; changes with every change of the file that a clock can tell

    @property
    def is_addressable(self) -> bool:
        """False for a name that JSON and URLs cannot carry: only sessions reach the entry."""
        return paths.is_addressable(self.name)

    @property
    def display_name(self) -> str:
        """The name for people."""
        return paths.display(self.name)


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of the sorted entries of a directory."""

    entries: list[FolderEntry]
    total: int  # entries in the directory, as far as they were read
    is_complete: bool  # False: the directory has more entries than are ever read


def kind_of(mode: int) -> EntryKind:
    """Return the kind by `st_mode`."""
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISDIR(mode):
        return EntryKind.DIRECTORY
    return EntryKind.SYMLINK if stat.S_ISLNK(mode) else EntryKind.OTHER


def entry_from(name: str, status: os.stat_result) -> FolderEntry:
    """Return the entry of this name and status."""
    kind = kind_of(status.st_mode)
    return FolderEntry(
        name=name,
        kind=kind,
        length_bytes=status.st_size if kind == EntryKind.FILE else 0,
        modified_at=datetime.fromtimestamp(_within_calendar(status.st_mtime), UTC),
        etag=f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"',
    )


def _within_calendar(seconds: float) -> float:
    """Return a time that `datetime` can hold: a file's may be any 64-bit number."""
    return min(max(seconds, 0.0), 253_402_300_799.0)
