"""Removes what has lasted too long: rows by the platform, files by every host on the storage roots of its machine.

What another host does meanwhile, or has done already, is no error.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from django.conf import settings

from folders.errors import FolderError, FolderInUseError, FolderStateError
from folders.files.errors import FilesError
from folders.files.walk import in_rounds
from folders.models import Folder, StorageRoot
from folders.sharing import folders as services
from folders.storage import paths as storage
from folders.uploads import services as uploads
from resources import clock

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 60.0  # between two sweeps of a root
PURGE_ENTRIES: Final = 10_000  # removed from the disk at a time


def sweep(root: StorageRoot, as_root: Callable[[int], bool] | None = None) -> None:
    """Delete expired uploads on a root of this machine, and the files of folders that are being deleted.

    What lies in the trash of a folder goes when the folder is measured. `as_root` is that of `RootDirectory.purge`.
    """
    try:
        uploads.remove_expired(root)
    except (FilesError, FolderError) as error:
        logger.info("storage root %s: not all expired uploads are removed yet: %s", root, error)
    for folder in Folder.objects.deleting().filter(root=root).select_related("root"):
        services.purge(folder)
    try:
        in_rounds(lambda: storage.root_directory(root).purge(PURGE_ENTRIES, as_root))
    except (FilesError, OSError) as error:  # such as another host at the same files
        logger.info("storage root %s: not all is removed yet: %s", root, error)


def delete_expired() -> int:
    """Have the folders deleted that were in the trash for COMPUTE_TRASH_DAYS; return how many.

    A task of the platform: hosts, which remove the files, do not know each other's sessions.
    """
    if not settings.COMPUTE_TRASH_DAYS:
        return 0
    limit = clock.now() - timedelta(days=settings.COMPUTE_TRASH_DAYS)
    expired = Folder.objects.filter(trashed_at__lt=limit, deleting_at=None)
    count = 0
    for folder in expired:
        try:
            services.mark_for_deletion(folder)
        except (FolderInUseError, FolderStateError) as reason:  # mounted, restored or deleted
            logger.info("folder %s: stays in the trash: %s", folder.pk, reason)
            continue
        count += 1
    return count
