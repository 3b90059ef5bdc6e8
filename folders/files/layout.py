"""Storage roots and the directories of folders on them.

    <root>/.gpuplatform-root            the root's key: without it the root is missing, such as an unmounted file system
    <root>/<owner>/<folder>/files       what sessions mount and pages show
    <root>/<owner>/<folder>/trash       what was deleted in it
    <root>/<owner>/<folder>/uploads     files that are not whole yet
    <root>/<owner>/.expunged/<folder>   folders that are being removed

Directories above `files` are open to the platform's user alone, whose all is that it makes; what root makes is for the
user of sessions. As another user's, sessions see it through a mount that maps the ids (`hostworker.privileged`).
"""

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from folders.files.descriptors import (
    Owner,
    names_in,
    open_directory,
    open_or_make_directory,
    rename_to_free_name,
    translated,
)
from folders.files.errors import RootMissingError
from folders.files.folder_files import FILES, FolderFiles, make_layout
from folders.files.kernel_quota import make_subvolume
from folders.files.paths import Parts
from folders.files.roots import NotEmptyError, examine, owner_at, write_marker
from folders.files.trash import EXPUNGED as EXPUNGED_ENTRIES
from folders.files.trash import PURGE_ENTRIES, TRASH
from folders.files.walk import Removal

EXPUNGED: Final = ".expunged"
PRIVATE_MODE: Final = 0o700


class RootDirectory:
    """The directory of a storage root on this machine."""

    def __init__(self, path: str, key: uuid.UUID) -> None:
        self.path = path
        self.key = key

    def problem(self) -> str:
        """Return why the root cannot be used here, "" if it can. Waits as long as the file system does not answer."""
        return examine(Path(self.path), str(self.key)).problem

    def prepare(self) -> None:
        """Make the directory with its marker file. Raises RootMissingError if something else lies there.

        Takes a new or empty directory, or the root itself, however often.
        """
        with translated(self.path):
            Path(self.path).mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
            try:
                write_marker(Path(self.path), str(self.key))
            except NotEmptyError as error:
                raise RootMissingError(str(error)) from error
        self._require()

    def folder_path(self, owner_id: int, folder_id: str) -> str:
        """Return the path of the folder's directory."""
        return f"{self.path}/{owner_id}/{folder_id}"

    def files_path(self, owner_id: int, folder_id: str) -> str:
        """Return the path of the directory that sessions mount."""
        return f"{self.folder_path(owner_id, folder_id)}/{FILES}"

    def create(self, owner_id: int, folder_id: str) -> None:
        """Make the directories of the folder; those that are there stay. Raises FilesError."""
        owner = self._require()
        root = self._open()
        try:
            with translated(self.path):
                with suppress(FileExistsError):
                    make_subvolume(root, str(owner_id), owner, PRIVATE_MODE)
                folder = open_or_make_directory(root, (str(owner_id), folder_id), owner, PRIVATE_MODE)
                try:
                    make_layout(folder)
                finally:
                    os.close(folder)
        finally:
            os.close(root)

    def open(self, owner_id: int, folder_id: str) -> FolderFiles:
        """Return the files of the folder. Raises RootMissingError, or EntryNotFoundError for a folder not made yet."""
        root = self._open()
        try:
            with translated("the folder's directory"):
                folder = open_directory(root, (str(owner_id), folder_id))
        finally:
            os.close(root)
        return FolderFiles(folder)

    def folders(self) -> list[tuple[int, str]]:
        """Return (owner, id) of each folder that has a directory here, whether anybody knows it or not."""
        root = self._open()
        try:
            with translated(self.path):
                owners = [name for name in names_in(root) if name.isdigit()]
                return [(int(owner), name) for owner in owners for name in _folders_of(root, owner)]
        finally:
            os.close(root)

    def hand_over(self, owner_id: int, folder_id: str, new_owner_id: int) -> None:
        """Move the folder's directory to another owner. Raises FilesError, also where that one has its like."""
        root = self._open()
        try:
            with translated(self.path):
                by = Owner.by(os.fstat(root))
                with suppress(FileExistsError):
                    make_subvolume(root, str(new_owner_id), by, PRIVATE_MODE)
                source, target = open_directory(root, (str(owner_id),)), open_directory(root, (str(new_owner_id),))
                try:
                    rename_to_free_name(source, folder_id, target, folder_id)
                finally:
                    os.close(source)
                    os.close(target)
        finally:
            os.close(root)

    def expunge(self, owner_id: int, folder_id: str) -> None:
        """Give the folder's files up for removal by `purge`. Quick; does nothing if there are none (any more)."""
        root = self._open()
        try:
            with translated(self.path), suppress(FileNotFoundError):
                owner = open_directory(root, (str(owner_id),))
                try:
                    area = open_or_make_directory(owner, (EXPUNGED,), Owner.by(os.fstat(owner)), PRIVATE_MODE)
                    try:
                        rename_to_free_name(owner, folder_id, area, folder_id)
                    finally:
                        os.close(area)
                finally:
                    os.close(owner)
        finally:
            os.close(root)

    def purge(self, max_entries: int, as_root: Callable[[int], bool] | None = None) -> bool:
        """Remove what was expunged from the disk, about `max_entries` of an owner; return whether nothing is left.

        `as_root` does so for an owner, where sessions have left what belongs to others than this process' user. What
        cannot be removed of one owner's holds up no other's; the error is raised once nothing else is left.
        """
        root = self._open()
        try:
            with translated(self.path):
                owners = [name for name in names_in(root) if name.isdigit()]
                is_done, failure = True, None
                for owner in owners:
                    try:
                        is_done &= _purge_of(root, owner, max_entries, as_root)
                    except OSError as error:
                        failure = error
                if failure and is_done:
                    raise failure
                return is_done
        finally:
            os.close(root)

    def _require(self) -> Owner:
        """Return to whom the files belong. Raises RootMissingError."""
        state = examine(Path(self.path), str(self.key))
        if state.problem:
            raise RootMissingError(state.problem)
        return state.owner

    def _open(self) -> int:
        """Return a descriptor of the root, whose path may lead through symbolic links: an administrator wrote it."""
        self._require()
        with translated(self.path):
            return os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _folders_of(root: int, owner: str) -> list[str]:
    directory = open_directory(root, (owner,))
    try:
        return [name for name in names_in(directory) if not name.startswith(".")]
    finally:
        os.close(directory)


def _purge_of(root: int, owner: str, max_entries: int, as_root: Callable[[int], bool] | None) -> bool:
    try:
        return purge_area(root, (owner, EXPUNGED), max_entries)
    except PermissionError:
        if as_root is None:
            raise
        return as_root(int(owner))


def purge(path: Path, key: str, holder: int, folder: str) -> bool:
    """Remove some of what was expunged from a holder's folders, or from the trash of the folder unless that is "".

    Return whether nothing is left; for root. Raises OSError, also where this is not the root with the key.
    """
    owner_at(path, key)
    root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        parts = (folder, TRASH, EXPUNGED_ENTRIES) if folder else (EXPUNGED,)
        return purge_area(root, (str(holder), *parts), PURGE_ENTRIES)
    finally:
        os.close(root)


def purge_area(root: int, parts: Parts, max_entries: int) -> bool:
    """Remove about `max_entries` entries of a directory at most; return whether nothing is left. Raises OSError."""
    try:
        area = open_directory(root, parts)
    except FileNotFoundError:
        return True
    try:
        return Removal(area).run(max_entries)
    finally:
        os.close(area)
