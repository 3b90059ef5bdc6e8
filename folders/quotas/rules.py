"""Storage of a user or project on a root against the policy. One function for pages, API, uploads and admin.

A root counts what the user's folders on it take, trash included, as last measured and corrected by what was written
since, and the whole length of uploads under way.
"""

from dataclasses import dataclass, replace

from django.db.models import Count, F, Sum
from django.db.models.functions import Greatest

from accounts.models import Project, User
from folders.errors import StorageQuotaError
from folders.models import Folder, StorageRoot, Upload
from resources import clock
from resources.amounts.units import size_text

Holder = User | Project


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageUse:
    """Storage used by a user or project on one root, and the limits; None is unlimited."""

    used_bytes: int = 0
    used_files: int = 0
    max_bytes: int | None = None
    max_files: int | None = None

    @property
    def left_bytes(self) -> int | None:
        """How much more may be written."""
        return None if self.max_bytes is None else max(0, self.max_bytes - self.used_bytes)

    @property
    def left_files(self) -> int | None:
        """How many more files and directories there may be."""
        return None if self.max_files is None else max(0, self.max_files - self.used_files)

    @property
    def is_exceeded(self) -> bool:
        """Whether more is used than allowed, as after a limit was lowered or a session has written too much."""
        return self.exceeds(1)

    def exceeds(self, factor: float) -> bool:
        """Return whether more than `factor` times of what is allowed is used."""
        return any(
            limit is not None and used > limit * factor
            for used, limit in ((self.used_bytes, self.max_bytes), (self.used_files, self.max_files))
        )


def storage_use(holder: Holder, root: StorageRoot) -> StorageUse:
    """Return what the folders of a user or project take on `root`; two queries."""
    return storage_uses(holder).get(root.pk) or _unused(holder)


def storage_uses(holder: Holder) -> dict[int, StorageUse]:
    """Return {root id: what the folders of a user or project take there} for the roots with any; two queries."""
    column = "project" if isinstance(holder, Project) else "owner"
    folders = Folder.objects.filter(**{column: holder}).order_by().values("root")
    uploads = Upload.objects.filter(**{f"folder__{column}": holder}, finished_at=None).order_by().values("folder__root")
    reserved = {
        row["folder__root"]: (row["bytes"], row["files"])
        for row in uploads.annotate(bytes=Sum("length"), files=Count("pk"))
    }
    uses, unused = {}, _unused(holder)
    for row in folders.annotate(bytes=Sum("used_bytes"), files=Sum("used_files")):
        more_bytes, more_files = reserved.get(row["root"], (0, 0))
        uses[row["root"]] = replace(unused, used_bytes=row["bytes"] + more_bytes, used_files=row["files"] + more_files)
    return uses


def limits_of(holder: Holder) -> tuple[int | None, int | None]:
    """Return how many bytes and files a user or project may store on each root; a project without a policy: none."""
    policy = holder.policy
    return (0, 0) if policy is None else (policy.storage_bytes, policy.storage_files)


def _unused(holder: Holder) -> StorageUse:
    max_bytes, max_files = limits_of(holder)
    return StorageUse(max_bytes=max_bytes, max_files=max_files)


def check_room(folder: Folder, *, add_bytes: int = 0, add_files: int = 0) -> StorageUse:
    """Return what the folder's owner uses on its root; two queries.

    Raises StorageQuotaError if they may not store this much more; with nothing to add, only where more is used than
    allowed already.
    """
    use = storage_use(folder.holder, folder.root)
    if _is_over(use.used_bytes + add_bytes, use.max_bytes):
        raise StorageQuotaError(
            f"{_no_room_for(f'{size_text(add_bytes)} more', add_bytes)}The owner's quota on {folder.root} is "
            f"{size_text(use.max_bytes or 0)}, of which {size_text(use.left_bytes or 0)} are left. "
            "Delete files, and empty the trash."
        )
    if _is_over(use.used_files + add_files, use.max_files):
        raise StorageQuotaError(
            f"{_no_room_for(f'{add_files} more', add_files)}The owner's quota on {folder.root} is "
            f"{use.max_files} files and directories, of which {use.left_files} are left. "
            "Delete files, and empty the trash."
        )
    return use


def exceeded_text(root: StorageRoot) -> str:
    """Return what it means for the owner to exceed their quota on the root."""
    return (
        f"Your folders on {root} take more than you may store there. Nothing can be added, and sessions may find them "
        "read-only, until you have deleted enough and emptied the trash."
    )


def held_text(folder: Folder, path: str) -> str:
    """Return why a folder is read-only at `path` in a session although it was mounted writable."""
    return (
        f"{path} is read-only now: the owner of the folder {folder} uses more storage on {folder.root} than allowed. "
        "Delete files on the page Data folders or over SFTP, and empty the trash; then it becomes writable again."
    )


def _no_room_for(amount: str, number: int) -> str:
    return f"There is no room for {amount}. " if number else ""


def record_growth(folder: Folder, *, add_bytes: int = 0, add_files: int = 0) -> None:
    """Count what was written, or with negative numbers removed, and have the folder measured soon; one query."""
    Folder.objects.filter(pk=folder.pk).update(
        used_bytes=Greatest(0, F("used_bytes") + add_bytes),
        used_files=Greatest(0, F("used_files") + add_files),
        measure_due_at=clock.now(),
    )


def _is_over(used: int, limit: int | None) -> bool:
    return limit is not None and used > limit
