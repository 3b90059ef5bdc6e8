"""From rows to directories: where the files of a folder are, and whether this process reaches them."""

import logging
from pathlib import Path
from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from folders.errors import StorageUnavailableError
from folders.files.errors import EntryNotFoundError, FilesError, RootMissingError
from folders.files.folder_files import FolderFiles
from folders.files.layout import RootDirectory
from folders.models import Folder, StorageRoot
from folders.storage import roots

logger = logging.getLogger(__name__)

DEFAULT_ROOT: Final = "default"


def root_directory(root: StorageRoot) -> RootDirectory:
    """Return the directory of the root; it need not be there."""
    return RootDirectory(root.path, root.key)


def unavailable_reason(root: StorageRoot) -> str:
    """Return why files on the root cannot be reached from this process, "" if they can. Takes at most two seconds.

    One query where the root is not on this machine, for the hosts that have it.
    """
    return roots.where_text(root)


def files_of(folder: Folder) -> FolderFiles:
    """Return the files of the folder, to be used in a `with` block. Raises StorageUnavailableError."""
    if reason := unavailable_reason(folder.root):
        raise StorageUnavailableError(reason)
    directory = root_directory(folder.root)
    try:
        try:
            return directory.open(folder.holder_number, folder.pk)
        except EntryNotFoundError:  # created while its root was elsewhere, and not used in a session yet
            directory.create(folder.holder_number, folder.pk)
            return directory.open(folder.holder_number, folder.pk)
    except RootMissingError as error:
        raise StorageUnavailableError(str(error)) from error


def ensure_directory(folder: Folder) -> None:
    """Make the directories of the folder on this machine if they are missing. Raises StorageUnavailableError."""
    try:
        root_directory(folder.root).create(folder.holder_number, folder.pk)
    except FilesError as error:
        raise StorageUnavailableError(str(error)) from error


def prepare_root(root: StorageRoot) -> None:
    """Make the root's directory and marker file on this machine. Raises StorageUnavailableError."""
    try:
        root_directory(root).prepare()
    except FilesError as error:
        raise StorageUnavailableError(str(error)) from error


def make_default(root: StorageRoot) -> None:
    """Offer this root first for new folders, instead of the one that was."""
    with transaction.atomic():
        StorageRoot.objects.filter(is_default=True).update(is_default=False)
        StorageRoot.objects.filter(pk=root.pk).update(is_default=True)


def register_default_root() -> StorageRoot | None:
    """Store COMPUTE_STORAGE_DIR as the default root unless there are roots, and make its directory if it is on here.

    Return the root that it is, None if an administrator has others. Raises StorageUnavailableError. Idempotent.
    """
    path = str(Path(settings.COMPUTE_STORAGE_DIR))
    with transaction.atomic():
        root = StorageRoot.objects.filter(path=path).first()
        if root is None and not StorageRoot.objects.exists():
            root = StorageRoot(name=DEFAULT_ROOT, path=path, is_default=True)
            try:
                root.full_clean()
            except ValidationError as error:
                message = f"Data folders cannot be kept in {path}: set COMPUTE_STORAGE_DIR to a path without spaces."
                raise StorageUnavailableError(message) from error
            root.save()
            logger.info("storage root %s: registered at %s", root, path)
    if root is not None and root.is_enabled:
        prepare_root(root)
    return root
