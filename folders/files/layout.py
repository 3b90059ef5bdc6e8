"""Storage roots and the directories of folders on them.

    <root>/.gpuplatform-root            the root's key: without it the root is missing, such as an unmounted file system
    <root>/<owner>/<folder>/files       what sessions mount and pages show
    <root>/<owner>/<folder>/trash       what was deleted in it
    <root>/<owner>/<folder>/uploads     files that are not whole yet
    <root>/<owner>/.expunged/<folder>   folders that are being removed

Directories above `files` are open to this process alone. Its user is root, or the user of sessions itself.
"""

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from folders.files.descriptors import (
    CONTAINER_UID,
    names_in,
    open_directory,
    open_or_make_directory,
    rename_to_free_name,
    translated,
)
from folders.files.errors import RootMissingError
from folders.files.folder_files import FILES, FolderFiles, make_layout
from folders.files.kernel_quota import make_subvolume
from folders.files.roots import NotEmptyError, examine, write_marker
from folders.files.walk import Removal

EXPUNGED: Final = ".expunged"
PRIVATE_MODE: Final = 0o700


def platform_problem() -> str:
    """Return why this process can keep no folders, "" if it can: files must get the ids of the container's user."""
    if os.geteuid() in (0, CONTAINER_UID):
        return ""
    return (
        f"Data folders are off: the platform runs as user id {os.geteuid()}. Files can get the owner that they have in "
        f"sessions only if it runs as root or as user id {CONTAINER_UID}."
    )


class RootDirectory:
    """The directory of a storage root on this machine."""

    def __init__(self, path: str, key: uuid.UUID) -> None:
        self.path = path
        self.key = key

    def problem(self) -> str:
        """Return why the root cannot be used here, "" if it can. Waits as long as the file system does not answer."""
        return platform_problem() or examine(Path(self.path), str(self.key)).problem

    def prepare(self) -> None:
        """Make the directory with its marker file. Raises RootMissingError if something else lies there.

        Takes a new or empty directory, or the root itself, however often.
        """
        if problem := platform_problem():
            raise RootMissingError(problem)
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
        root = self._open()
        try:
            with translated(self.path):
                with suppress(FileExistsError):
                    make_subvolume(root, str(owner_id), PRIVATE_MODE)
                folder = open_or_make_directory(root, (str(owner_id), folder_id), mode=PRIVATE_MODE)
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

    def expunge(self, owner_id: int, folder_id: str) -> None:
        """Give the folder's files up for removal by `purge`. Quick; does nothing if there are none (any more)."""
        root = self._open()
        try:
            with translated(self.path), suppress(FileNotFoundError):
                owner = open_directory(root, (str(owner_id),))
                try:
                    area = open_or_make_directory(owner, (EXPUNGED,), mode=PRIVATE_MODE)
                    try:
                        rename_to_free_name(owner, folder_id, area, folder_id)
                    finally:
                        os.close(area)
                finally:
                    os.close(owner)
        finally:
            os.close(root)

    def purge(self, max_entries: int) -> bool:
        """Remove what was expunged from the disk, about `max_entries` of an owner; return whether nothing is left."""
        root = self._open()
        try:
            with translated(self.path):
                owners = [name for name in names_in(root) if name.isdigit()]
                return all(_purge_of(root, owner, max_entries) for owner in owners)
        finally:
            os.close(root)

    def _require(self) -> None:
        if problem := self.problem():
            raise RootMissingError(problem)

    def _open(self) -> int:
        """Return a descriptor of the root, whose path may lead through symbolic links: an administrator wrote it."""
        self._require()
        with translated(self.path):
            return os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _purge_of(root: int, owner: str, max_entries: int) -> bool:
    try:
        area = open_directory(root, (owner, EXPUNGED))
    except FileNotFoundError:
        return True
    try:
        return Removal(area).run(max_entries)
    finally:
        os.close(area)
