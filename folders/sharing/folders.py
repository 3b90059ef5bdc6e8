"""Operations on folders for pages, API and admin: create, rename, trash, delete, share. One transaction each."""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from django.db import connection, transaction

from accounts import audit
from accounts.models import Project, User
from folders.errors import FolderInUseError, FolderRejectedError, FolderStateError
from folders.files.errors import FilesError
from folders.models import Folder, FolderShare, StorageRoot, new_folder_id
from folders.names import folder_name_error
from folders.sharing.access import manages
from folders.storage import paths as storage
from resources import clock

logger = logging.getLogger(__name__)

Holder = User | Project  # whose folders share names and a quota
MAX_SHARES: Final = 200  # of one folder
PURGE_ENTRIES: Final = 10_000  # that one call removes from the disk; a sweep continues


def create(holder: Holder, name: str, root: StorageRoot | None = None, folder_id: str = "") -> Folder:
    """Create a folder of a user or project on `root`, or on the default root, and return it.

    With `folder_id` it is one whose directory is there already. Else this is made at once where the root is on this
    machine, or by the first host that mounts it. Raises FolderRejectedError with a message per field (`name`, `root`).
    """
    folder = create_row(holder, name, root, folder_id)
    make_directory(folder)
    return folder


def create_row(holder: Holder, name: str, root: StorageRoot | None = None, folder_id: str = "") -> Folder:
    """Create a folder as `create` does, without its directory: for a transaction that may yet be rolled back."""
    root = root or default_root()
    if root is None or not root.is_enabled:
        raise FolderRejectedError({"root": "No storage takes new folders at present; ask an administrator."})
    _check_name(name)
    with transaction.atomic():
        lock_folders_of(holder)
        _check_count(holder)
        _check_free(holder, name)
        folder = Folder.objects.create(pk=folder_id or new_folder_id(), **_of(holder), name=name, root=root)
    logger.info("folder %s: created for %s on %s", folder.pk, holder, root)
    return folder


def make_directory(folder: Folder) -> None:
    """Make the directory of a new folder where its root is on this machine."""
    if not storage.unavailable_reason(folder.root):
        storage.ensure_directory(folder)


def default_root() -> StorageRoot | None:
    """Return the root on which a folder is created when none is named: the default one, else the first enabled."""
    return StorageRoot.objects.filter(is_enabled=True).order_by("-is_default", "name").first()


def rename(folder: Folder, name: str) -> None:
    """Rename the folder; sessions keep the path at which it is. Raises FolderRejectedError, FolderStateError."""
    _check_name(name)
    with transaction.atomic():
        lock_folders_of(folder.holder)
        current = _locked(folder)
        _require_live(current)
        if name != current.name:
            _check_free(folder.holder, name)
            current.name = name
            current.save(update_fields=["name"])
    folder.name = name


def trash(folder: Folder, *, actor: User | None = None) -> None:
    """Move the folder to the trash: it is no longer mounted nor shared, until it is restored.

    Raises FolderInUseError while sessions mount it. Does nothing if it is in the trash already.
    """
    with transaction.atomic(), _act_of_superadmin(actor, "trash folder", folder):
        current = _locked(folder)
        if current.trashed_at is None:
            _require_unused(current)
            current.trashed_at = clock.now()
            current.save(update_fields=["trashed_at"])
            logger.info("folder %s: moved to the trash", folder.pk)
    folder.trashed_at = current.trashed_at


def restore(folder: Folder, name: str = "", *, actor: User | None = None) -> None:
    """Take the folder out of the trash, under another name if one is given; its shares count again.

    Raises FolderRejectedError if the name is taken by now, or the owner has as many folders as their policy allows.
    """
    if name:
        _check_name(name)
    with transaction.atomic(), _act_of_superadmin(actor, "restore folder", folder):
        lock_folders_of(folder.holder)
        current = _locked(folder)
        if current.trashed_at is not None:
            _check_count(folder.holder)
            _check_free(folder.holder, name or current.name)
            current.name, current.trashed_at = name or current.name, None
            current.save(update_fields=["name", "trashed_at"])
            logger.info("folder %s: restored", folder.pk)
    folder.name, folder.trashed_at = current.name, None


def delete_forever(folder: Folder, *, actor: User | None = None) -> None:
    """Delete a folder that is in the trash with all its files, now where its root is on this machine.

    Raises FolderStateError unless it is in the trash, FolderInUseError while a session still mounts it.
    """
    mark_for_deletion(folder, actor=actor)
    purge(folder)


def mark_for_deletion(folder: Folder, *, actor: User | None = None) -> None:
    """Have the files of a folder in the trash removed by a host that has its root; see `purge`.

    Only the platform knows the sessions of all hosts, so hosts do not decide this. Raises as `delete_forever` does.
    """
    with transaction.atomic(), _act_of_superadmin(actor, "delete folder", folder):
        current = _locked(folder)
        if current.trashed_at is None:
            raise FolderStateError("Only a folder that is in the trash can be deleted for ever.")
        _require_unused(current)
        current.deleting_at = clock.now()
        current.save(update_fields=["deleting_at"])
        logger.info("folder %s: its files are being deleted for ever", folder.pk)
    folder.deleting_at = current.deleting_at


def purge(folder: Folder) -> bool:
    """Take the files of a folder that is being deleted off its root, and delete its row; return whether that is done.

    False where the root is not on this machine. What is taken off is removed from the disk here as far as that is
    quick, and otherwise by the sweep of the root. Safe to repeat after a crash at any point.
    """
    if folder.deleting_at is None:
        raise FolderStateError("The folder is not being deleted.")
    if storage.unavailable_reason(folder.root):
        return False
    directory = storage.root_directory(folder.root)
    try:
        directory.expunge(folder.holder_number, folder.pk)
        _forget(folder)
        directory.purge(PURGE_ENTRIES)
    except FilesError as error:
        logger.warning("folder %s: its files are not removed yet: %s", folder.pk, error)
        return False
    return True


def _forget(folder: Folder) -> None:
    """Delete the row of a folder that is being deleted, by a function that also knows the sessions of other hosts."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT folders_forget_folder(%s)", [folder.pk])


def share(folder: Folder, user: User, *, is_read_only: bool = True) -> FolderShare:
    """Share the folder with `user`, or change the rights of a share that exists; return the share.

    Raises FolderRejectedError (`user`), FolderStateError.
    """
    if user.pk == folder.owner_id:
        raise FolderRejectedError({"user": "This is the owner of the folder."})
    if not user.is_active:
        raise FolderRejectedError({"user": "This account is disabled."})
    with transaction.atomic():
        current = _locked(folder)
        _require_live(current)
        others = current.shares.exclude(user=user)
        if others.count() >= MAX_SHARES:
            raise FolderRejectedError({"user": f"A folder can be shared with at most {MAX_SHARES} users."})
        made, _ = FolderShare.objects.update_or_create(
            folder=current, user=user, defaults={"is_read_only": is_read_only}
        )
    logger.info("folder %s: shared with user %s, read-only: %s", folder.pk, user.pk, is_read_only)
    return made


def withdraw(share: FolderShare) -> None:
    """End a share, at once for files and for new sessions; host workers take it out of running sessions in seconds."""
    share.delete()
    logger.info("folder %s: no longer shared with user %s", share.folder_id, share.user_id)


def _act_of_superadmin(actor: User | None, action: str, folder: Folder) -> AbstractContextManager[object]:
    """Return a block whose changes are audited, unless `actor` manages the folder, or is the platform (None)."""
    if actor is None or manages(actor, folder):
        return nullcontext()
    return audit.act(actor, action, folder)


def _check_name(name: str) -> None:
    if error := folder_name_error(name):
        raise FolderRejectedError({"name": error})


def lock_folders_of(holder: Holder) -> None:
    """Serialize what changes the names, number and reservations of one holder's folders, until the transaction ends."""
    rows = Project.objects.all() if isinstance(holder, Project) else User.objects.all()
    rows.select_for_update(no_key=True, of=("self",)).get(pk=holder.pk)


def _of(holder: Holder) -> dict[str, Any]:
    """Return the columns of a folder that say whose it is."""
    return {"project": holder} if isinstance(holder, Project) else {"owner": holder}


def _locked(folder: Folder) -> Folder:
    """Return the current row, locked until the transaction ends. Raises FolderStateError once it is being deleted."""
    current = Folder.objects.select_for_update(no_key=True).filter(pk=folder.pk).first()
    if current is None or current.deleting_at is not None:
        raise FolderStateError("The folder was deleted.")
    return current


def _require_live(folder: Folder) -> None:
    if folder.trashed_at is not None:
        raise FolderStateError("The folder is in the trash; restore it first.")


def _check_count(holder: Holder) -> None:
    policy = holder.policy
    if policy is None:
        raise FolderRejectedError({"name": f"The project {holder} has no policy, which would give it storage."})
    most = policy.max_folders
    if most is None or Folder.objects.live().filter(**_of(holder)).count() < most:
        return
    if isinstance(holder, Project):
        raise FolderRejectedError({"name": f"The project's policy allows {most} data folders, and it has as many."})
    raise FolderRejectedError({"name": f"Your policy allows {most} data folders, and you have as many."})


def _check_free(holder: Holder, name: str) -> None:
    if Folder.objects.live().filter(**_of(holder), name=name).exists():
        who = f"The project {holder} has" if isinstance(holder, Project) else "You have"
        raise FolderRejectedError({"name": f"{who} a folder called {name} already."})


def _require_unused(folder: Folder) -> None:
    users = sessions_using(folder)
    if users:
        more = f" and {len(users) - 3} more" if len(users) > 3 else ""
        raise FolderInUseError(f"Sessions use the folder: {', '.join(users[:3])}{more}. End them first.")


def sessions_using(folder: Folder) -> list[str]:
    """Return the names of sessions that mount the folder and have not ended; one query.

    Sessions are a package above this one, which reaches them by the reverse relation of `sessions.Mount`.
    """
    mounts = folder.mounts.filter(problem="", session__ended_at=None)
    return list(mounts.order_by("session__name").values_list("session__name", flat=True))
