"""What a user may do with a folder. One function, for pages, API, uploads, mounts and SFTP.

The owner reads and writes; a share gives one of both. In the trash a folder is read-only for its owner, and nobody
else's. Superadmins see that a folder exists, whose it is and how large, and may delete it; its files they see only
where it is shared with them.
"""

from enum import IntEnum

from accounts.models import User
from folders.errors import FolderAccessError, FolderStateError
from folders.models import Folder


class Access(IntEnum):
    """Rights to the files of a folder, each with those before it."""

    NONE = 0
    READ = 1
    WRITE = 2


def access(user: User, folder: Folder) -> Access:
    """Return the rights of `user` to the files of `folder`; one query unless `with_rights_of` has read the share."""
    if folder.deleting_at or not user.is_active:
        return Access.NONE
    if folder.owner_id == user.pk:
        return Access.READ if folder.trashed_at else Access.WRITE
    if folder.trashed_at:
        return Access.NONE
    if hasattr(folder, "shared_read_only"):
        is_read_only: bool | None = folder.shared_read_only
    else:
        is_read_only = folder.shares.filter(user=user).values_list("is_read_only", flat=True).first()
    if is_read_only is None:
        return Access.NONE
    return Access.READ if is_read_only else Access.WRITE


def require(user: User, folder: Folder, needed: Access) -> None:
    """Raise FolderAccessError, or FolderStateError for the trash, unless `user` has the right to the files."""
    granted = access(user, folder)
    if granted >= needed:
        return
    if granted == Access.NONE:
        raise FolderAccessError("Only the owner of a folder, and those with whom it is shared, may see its files.")
    if folder.trashed_at:
        raise FolderStateError("The folder is in the trash; restore it to change what is in it.")
    raise FolderAccessError("The folder is shared with you read-only.")


def require_owner(user: User, folder: Folder) -> None:
    """Raise FolderAccessError unless `user` owns the folder: to rename and to share it."""
    if folder.owner_id != user.pk:
        raise FolderAccessError("Only the owner of the folder may do this.")


def require_manager(user: User, folder: Folder) -> None:
    """Raise FolderAccessError unless `user` owns the folder or is a superadmin: to delete and to restore it."""
    if not user.is_superuser:
        require_owner(user, folder)
