"""Directories of folders without a row, such as those that were made after the backup that was restored."""

from dataclasses import dataclass

from accounts.models import Project
from folders.models import Folder, StorageRoot
from folders.sharing import folders
from folders.sharing.folders import Holder
from folders.storage import paths as storage


@dataclass(frozen=True, slots=True)
class OrphanedFolder:
    """A directory on a root of this machine that belongs to no folder; `holder_number` is the directory it lies in."""

    root: StorageRoot
    holder_number: int
    folder_id: str


def orphans() -> list[OrphanedFolder]:
    """Return those on all roots that this machine has. Raises FilesError."""
    found = [
        OrphanedFolder(root, holder, folder_id)
        for root in StorageRoot.objects.all()
        if not storage.unavailable_reason(root)
        for holder, folder_id in storage.root_directory(root).folders()
    ]
    known = set(Folder.objects.filter(pk__in=[each.folder_id for each in found]).values_list("pk", flat=True))
    return [each for each in found if each.folder_id not in known]


def adopt(orphan: OrphanedFolder, holder: Holder, name: str) -> Folder:
    """Make it a folder of a user or project. Raises FolderRejectedError, FilesError.

    Its directory moves first: where what follows fails, it is an orphan still.
    """
    row = Folder(project=holder) if isinstance(holder, Project) else Folder(owner=holder)
    number = row.holder_number
    if number != orphan.holder_number:
        storage.root_directory(orphan.root).hand_over(orphan.holder_number, orphan.folder_id, number)
    return folders.create(holder, name, orphan.root, orphan.folder_id)


def remove(orphan: OrphanedFolder) -> None:
    """Give its files up for removal, which hosts do bit by bit. Raises FilesError."""
    storage.root_directory(orphan.root).expunge(orphan.holder_number, orphan.folder_id)
