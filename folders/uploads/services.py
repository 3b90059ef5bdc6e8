"""Uploads under way: begun, continued and ended by requests of any length, on any web process.

The row says what the file is to become. How much of it is there, the partial file itself says.
"""

import logging
import os
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction

from accounts.models import User
from folders.errors import FolderStateError, StorageQuotaError
from folders.files.entries import EntryKind
from folders.files.errors import EntryExistsError, EntryKindError, EntryNotFoundError
from folders.files.folder_files import FolderFiles
from folders.files.partial import PartialFile, publish_beside
from folders.files.paths import display, new_parts_of
from folders.models import Folder, OnConflict, StorageRoot, Upload
from folders.quotas import rules as quota
from folders.sharing.access import Access, require
from folders.sharing.folders import lock_folders_of
from folders.storage.paths import files_of
from resources import clock

logger = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 200  # uploads of a user; each may hold two blocks of memory in a web process
FINISHED_LIFETIME: Final = timedelta(days=1)  # in which a client that missed the response learns how it ended


def begin(user: User, folder: Folder, path: str, length_bytes: int, on_conflict: OnConflict) -> Upload:
    """Make an upload and its empty partial file, and return it.

    Raises FolderAccessError, StorageQuotaError, FilesError: EntryExistsError if the path is taken and the upload is to
    be refused then, EntryKindError where a directory is in its place or a file in the place of a directory above it.
    """
    require(user, folder, Access.WRITE)
    with files_of(folder) as files:
        replaced_bytes = _check_path(files, path, on_conflict)
        with transaction.atomic():
            lock_folders_of(folder.holder)  # one reservation at a time
            quota.check_room(folder, add_bytes=max(0, length_bytes - replaced_bytes), add_files=1)
            _check_count(user)
            upload = Upload.objects.create(
                folder=folder,
                user=user,
                path=path,
                length=length_bytes,
                on_conflict=on_conflict,
                expires_at=_expiry(),
            )
        os.close(files.staging.open(str(upload.pk), create=True))
    logger.info("folder %s: user %s begins upload %s of %s bytes", folder.pk, user.pk, upload.pk, length_bytes)
    return upload


def _check_path(files: FolderFiles, path: str, on_conflict: OnConflict) -> int:
    """Return how many bytes the file has that would be replaced."""
    parts = new_parts_of(path)
    for end in range(1, len(parts)):
        try:
            above = files.stat("/".join(parts[:end]))
        except EntryNotFoundError:
            return 0
        if above.kind != EntryKind.DIRECTORY:
            raise EntryKindError(f"This is not a directory: {display('/'.join(parts[:end]))}")
    try:
        there = files.stat(path)
    except EntryNotFoundError:
        return 0
    if on_conflict == OnConflict.REFUSE:
        raise EntryExistsError(f"There is already a file or directory of this name: {display(path)}")
    if on_conflict == OnConflict.REPLACE and there.kind == EntryKind.DIRECTORY:
        raise EntryKindError(f"This is a directory, which a file cannot replace: {display(path)}")
    return there.length_bytes if on_conflict == OnConflict.REPLACE else 0


def _check_count(user: User) -> None:
    count = Upload.objects.filter(user=user, finished_at=None).count()
    if count >= MAX_UNDER_WAY:
        raise StorageQuotaError(f"You have {count} uploads that are not finished. Finish or end some of them first.")


def received_bytes(upload: Upload) -> int:
    """Return how much of the file is there. Raises EntryNotFoundError if the partial file is gone."""
    if upload.finished_at:
        return upload.length
    with files_of(upload.folder) as files:
        return files.staging.length_bytes(str(upload.pk))


def resume(upload: Upload) -> PartialFile:
    """Return the partial file, locked for writing, which the caller closes; the upload expires later then.

    Raises PartialFileBusyError, and EntryNotFoundError if the file is gone, or was finished or removed meanwhile.
    """
    with files_of(upload.folder) as files:
        partial = PartialFile(files.staging, str(upload.pk))
    if not Upload.objects.filter(pk=upload.pk, finished_at=None).update(expires_at=_expiry()):
        partial.close()
        raise EntryNotFoundError("The upload has ended.")
    return partial


def _expiry() -> datetime:
    """Return when an upload expires that nobody continues from now on."""
    return clock.now() + timedelta(hours=settings.COMPUTE_UPLOAD_HOURS)


def check(upload: Upload) -> None:
    """Raise FolderError if by now the user may not write, or the folder's owner uses more storage than they may."""
    folder = _check_access(upload)
    if quota.storage_use(folder.holder, folder.root).is_exceeded:
        raise StorageQuotaError("The quota of the folder's owner is used up. Delete files, and empty the trash.")


def _check_access(upload: Upload) -> Folder:
    """Return the folder as it is now. Raises FolderError unless the upload still exists and its user may write."""
    current = (
        Upload.objects.select_related("user", "folder__owner__policy", "folder__project__policy", "folder__root")
        .filter(pk=upload.pk)
        .first()
    )
    if current is None:
        raise FolderStateError("The upload was ended.")
    require(current.user, current.folder, Access.WRITE)
    return current.folder


def finish(upload: Upload, partial: PartialFile) -> None:
    """Put the whole file into its place; `upload.path` is then where it is. The caller holds the lock on the file.

    Raises FilesError: EntryExistsError if the path was taken meanwhile and the upload is to be refused then. Raises
    FolderError if the user may not write any more.
    """
    partial.sync()
    _check_access(upload)
    name, parent = str(upload.pk), upload.path.rpartition("/")[0]
    with files_of(upload.folder) as files:
        if parent:
            files.mkdir(parent, parents=True)
        if upload.on_conflict == OnConflict.KEEP_BOTH:
            last = publish_beside(files.staging, name, upload.path).name
            upload.path = f"{parent}/{last}" if parent else last
        else:
            files.staging.publish(name, upload.path, replace=upload.on_conflict == OnConflict.REPLACE)
    upload.finished_at = clock.now()
    upload.expires_at = upload.finished_at + FINISHED_LIFETIME
    with transaction.atomic():
        upload.save(update_fields=["path", "finished_at", "expires_at"])
        quota.record_growth(upload.folder, add_bytes=upload.length, add_files=1)
    logger.info("folder %s: upload %s is whole", upload.folder_id, upload.pk)


def end(upload: Upload) -> None:
    """Remove an upload with what is there of the file; a file that is in its place stays. Safe to repeat."""
    with files_of(upload.folder) as files:
        files.staging.remove(str(upload.pk))
    upload.delete()


def remove_expired(root: StorageRoot) -> int:
    """Remove uploads that nobody continued from a root of this machine; return how many."""
    expired = Upload.objects.filter(expires_at__lt=clock.now(), folder__root=root, folder__deleting_at=None)
    count = 0
    for upload in expired.select_related("folder__root"):
        end(upload)
        count += 1
    return count
