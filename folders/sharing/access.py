"""What a user may do with a folder. One function, for pages, API, uploads, mounts and SFTP.

The owner reads and writes; a share gives one of both. Members of a project read and write its folders, and its managers
manage them as an owner does. In the trash a folder is read-only for its owner, and nobody
else's. Superadmins see that a folder exists, whose it is and how large, and may delete it; its files they see only
where it is shared with them.
"""

from enum import IntEnum

from accounts.models import Membership, ProjectRole, User
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
    role = project_role(user, folder)
    if folder.owner_id == user.pk or role == ProjectRole.MANAGER.value:
        return Access.READ if folder.trashed_at else Access.WRITE
    if folder.trashed_at:
        return Access.NONE
    if role is not None:
        return Access.WRITE
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


def project_role(user: User, folder: Folder) -> str | None:
    """Return the role of `user` in the folder's project; one query unless `with_rights_of` has read it."""
    if folder.project_id is None:
        return None
    if hasattr(folder, "project_role"):
        known: str | None = folder.project_role
        return known
    memberships = Membership.objects.filter(project=folder.project_id, user=user)
    return memberships.values_list("role", flat=True).first()


def manages(user: User, folder: Folder) -> bool:
    """Return whether `user` owns the folder, or manages the project that does."""
    return folder.owner_id == user.pk or project_role(user, folder) == ProjectRole.MANAGER.value


def require_owner(user: User, folder: Folder) -> None:
    """Raise FolderAccessError unless `user` owns the folder or manages its project: to rename and to share it."""
    if not manages(user, folder):
        raise FolderAccessError("Only the owner of the folder may do this.")


def require_manager(user: User, folder: Folder) -> None:
    """Raise FolderAccessError unless `user` manages the folder or is a superadmin: to delete and to restore it."""
    if not user.is_superuser:
        require_owner(user, folder)
