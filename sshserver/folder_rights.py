"""The data folders that a user reaches over SFTP, and what they may do in each.

/<name>              a folder of the user's own
/<name>@<e-mail>     one that its owner shares with them
/<name>@<project>    one of a project of theirs
"""

import time
from dataclasses import dataclass
from typing import Final

from accounts.models import User
from folders.errors import FolderAccessError
from folders.files.errors import EntryNotFoundError
from folders.models import Folder
from folders.sharing import access
from folders.sharing.access import Access

RIGHTS_SECONDS: Final = 0.7  # for which rights that were looked up hold: a share that is withdrawn ends within a second


@dataclass(frozen=True, slots=True)
class _Right:
    """A folder that the user reaches, and what they may do in it."""

    folder: Folder
    access: Access


class FolderRights:
    """The rights of one user, looked up at most RIGHTS_SECONDS ago. Blocking; raises FolderError."""

    def __init__(self, user_id: int) -> None:
        self._user_id = user_id
        self._rights: dict[str, _Right] = {}
        self._looked_up_at = float("-inf")

    def names(self) -> list[str]:
        """Return the names of the folders in the tree."""
        return sorted(self._current())

    def folder(self, name: str, needed: Access) -> Folder:
        """Return the folder of this name, if the user has the right to it."""
        right = self._current().get(name)
        if right is None or right.access == Access.NONE:
            raise EntryNotFoundError("There is no such data folder, or it is not shared with you (any more).")
        if right.access < needed:
            raise FolderAccessError("The folder is shared with you read-only.")
        return right.folder

    def folder_with_id(self, folder_id: str, needed: Access) -> Folder:
        """Return the folder of which the user has a file open, if they still have the right to it."""
        for right in self._current().values():
            if right.folder.pk == folder_id and right.access >= needed:
                return right.folder
        raise FolderAccessError("The folder is not shared with you any more, or not for this.")

    def _current(self) -> dict[str, _Right]:
        if time.monotonic() - self._looked_up_at > RIGHTS_SECONDS:
            user = User.objects.filter(pk=self._user_id, is_active=True).first()
            if user is None:
                raise FolderAccessError("This account is disabled.")
            folders = Folder.objects.live().readable_by(user).with_rights_of(user)
            rights: dict[str, _Right] = {}
            for folder in folders.select_related("owner__policy", "project__policy", "root").order_by("pk"):
                rights.setdefault(_name_for(user, folder), _Right(folder, access.access(user, folder)))
            self._rights, self._looked_up_at = rights, time.monotonic()
        return self._rights


def _name_for(user: User, folder: Folder) -> str:
    """Return the folder's name in the tree of `user`; a folder's own name never has an @."""
    if folder.owner_id == user.pk:
        return folder.name
    return f"{folder.name}@{folder.holder_name}".replace("/", "_")
