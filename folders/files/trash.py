"""The trash of a folder, as in the freedesktop.org Trash specification 1.0: `files`, `info`, `expunged` in `trash`.

An item's id is random, so that names of any length and in any number may be deleted; its information file has the path
from which it came. Dates are UTC. What has lost its information is listed under its id.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from folders.files.descriptors import (
    Owner,
    directory,
    names_in,
    open_directory,
    open_or_make_directory,
    open_regular,
    rename_to_free_name,
    status_of,
    translated,
)
from folders.files.entries import FolderEntry, entry_from
from folders.files.errors import EntryNotFoundError, FilesError, StorageFullError
from folders.files.paths import display, entry_parts_of, new_parts_of
from folders.files.walk import Removal, Usage

TRASH: Final = "trash"
EXPUNGED: Final = "expunged"
MAX_INFO_BYTES: Final = 3 * 4096 + 200  # a path with every byte percent-encoded
PURGE_ENTRIES: Final = 10_000  # that one request removes from the disk; a sweep continues
_ID: Final = re.compile(r"[0-9a-f]{32}")
_INFO: Final = re.compile(rb"\[Trash Info\]\nPath=([^\n]+)\nDeletionDate=([0-9T:-]{19})\n")


@dataclass(frozen=True, slots=True)
class TrashedEntry:
    """An entry in the trash."""

    id: str
    path: str  # from which it was deleted
    entry: FolderEntry  # its name is that of the path
    deleted_at: datetime

    @property
    def display_path(self) -> str:
        """The path for people."""
        return display(self.path)


class FolderTrash:
    """The trash of one folder."""

    def __init__(self, folder: int, files: int, owner: Owner) -> None:
        self._folder = folder
        self._files = files
        self._owner = owner
        self.freed = Usage()  # what `purge` has removed so far

    def put(self, path: str, now: datetime) -> TrashedEntry:
        """Move the entry to the trash, and return it there."""
        parts = entry_parts_of(path)
        with (
            directory(self._files, parts[:-1]) as parent,
            self._area("info") as info,
            self._area("files") as area,
            translated(path),
        ):
            status = status_of(parent, parts[-1])
            item_id = secrets.token_hex(16)
            with suppress(StorageFullError):  # then it is listed under its id, for it must be possible to delete now
                _write_info(info, item_id, path, now)
            try:
                rename_to_free_name(parent, parts[-1], area, item_id)
            except OSError:
                _remove_info(info, item_id)
                raise
        return TrashedEntry(item_id, path, entry_from(parts[-1], status), now.replace(microsecond=0))

    def items(self) -> list[TrashedEntry]:
        """Return what is in the trash, the latest first; under its id where nothing says from which path it came."""
        with self._area("info") as info, self._area("files") as area:
            found = (_item(info, area, name) for name in names_in(area))
            return sorted((item for item in found if item), key=lambda item: (item.deleted_at, item.id), reverse=True)

    def restore(self, item_id: str, path: str | None = None) -> FolderEntry:
        """Move the item back to where it came from, or to `path`; directories that are gone are made again.

        Raises EntryNotFoundError for an unknown item, EntryExistsError if the path is taken.
        """
        with self._area("info") as info, self._area("files") as area:
            item = self._require(info, area, item_id)
            parts = entry_parts_of(item.path) if path is None else new_parts_of(path)
            with translated("/".join(parts)):
                parent = open_or_make_directory(self._files, parts[:-1], self._owner)
                try:
                    rename_to_free_name(area, item_id, parent, parts[-1])
                    _remove_info(info, item_id)
                    return entry_from(parts[-1], status_of(parent, parts[-1]))
                finally:
                    os.close(parent)

    def expunge(self, item_id: str) -> None:
        """Give the item up for removal: it is no longer listed, and `purge` removes it. Quick whatever its size."""
        with self._area("info") as info, self._area("files") as area, self._area("expunged") as expunged:
            self._require(info, area, item_id)
            with translated(item_id):
                rename_to_free_name(area, item_id, expunged, item_id)
                _remove_info(info, item_id)

    def empty(self, before: datetime | None = None) -> int:
        """Expunge all items, or those deleted before a time; return how many. `purge` then removes them.

        With a time, information without an item is removed too, which a crash between two steps leaves.
        """
        expunged = 0
        for item in self.items():
            if before is None or item.deleted_at < before:
                with suppress(EntryNotFoundError):  # somebody else was quicker
                    self.expunge(item.id)
                    expunged += 1
        if before is not None:
            self._remove_stray_information(before)
        return expunged

    def purge(self, max_entries: int = PURGE_ENTRIES) -> bool:
        """Remove what was expunged from the disk, about `max_entries` at most; return whether nothing is left."""
        with self._area("expunged") as expunged, translated("the trash"):
            removal = Removal(expunged)
            try:
                return removal.run(max_entries)
            finally:
                self.freed += removal.freed

    def _remove_stray_information(self, before: datetime) -> None:
        with self._area("info") as info, self._area("files") as area, translated("the trash"):
            existing = {_info_name(item_id) for item_id in names_in(area)}
            for name in names_in(info):
                with suppress(FileNotFoundError):
                    if name not in existing and status_of(info, name).st_mtime < before.timestamp():
                        os.unlink(name, dir_fd=info)

    @contextmanager
    def _area(self, name: str) -> Iterator[int]:
        """Give a descriptor of a directory of the trash to a block."""
        with translated("the trash"):
            opened = open_directory(self._folder, (TRASH, name))
        try:
            yield opened
        finally:
            os.close(opened)

    def _require(self, info: int, area: int, item_id: str) -> TrashedEntry:
        item = _item(info, area, item_id)
        if item is None:
            raise EntryNotFoundError("This is not in the trash any more.")
        return item


def _info_name(item_id: str) -> str:
    return f"{item_id}.trashinfo"


def _remove_info(info: int, item_id: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_info_name(item_id), dir_fd=info)


def _write_info(info: int, item_id: str, path: str, now: datetime) -> None:
    """Write the information of an item. Raises FilesError; what was written of it is then no information."""
    text = f"[Trash Info]\nPath={quote_from_bytes(os.fsencode(path))}\nDeletionDate={now:%Y-%m-%dT%H:%M:%S}\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with translated(path):
        opened = os.open(_info_name(item_id), flags, 0o600, dir_fd=info)
        with open(opened, "wb") as file:
            file.write(text.encode())


def _item(info: int, area: int, item_id: str) -> TrashedEntry | None:
    """Return the item, or None if there is none (any more)."""
    if not _ID.fullmatch(item_id):
        return None
    try:
        status = status_of(area, item_id)
    except FileNotFoundError:
        return None
    path, deleted_at = _information(info, item_id) or (item_id, datetime.fromtimestamp(status.st_ctime, UTC))
    return TrashedEntry(item_id, path, entry_from(path.rpartition("/")[2], status), deleted_at)


def _information(info: int, item_id: str) -> tuple[str, datetime] | None:
    """Return from which path the item was deleted and when, or None unless it is as this module writes it."""
    try:
        with open(open_regular(info, _info_name(item_id)), "rb") as file:
            match = _INFO.fullmatch(file.read(MAX_INFO_BYTES))
        if match is None:
            return None
        path = os.fsdecode(unquote_to_bytes(match[1]))
        entry_parts_of(path)
        return path, datetime.fromisoformat(match[2].decode()).replace(tzinfo=UTC)
    except (OSError, FilesError, ValueError):
        return None
