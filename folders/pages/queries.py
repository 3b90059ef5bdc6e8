"""What the pages of data folders list: folders by tab, storage bars, and roots to choose from."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.db.models import Count, Exists, F, OuterRef, Q, Subquery

from accounts.models import User
from folders.models import Folder, FolderQuerySet, FolderShare, HostRoot, StorageRoot
from folders.quotas.rules import StorageUse, exceeded_text, storage_uses
from folders.storage import paths as storage
from folders.storage import roots

DEFAULT_SORT: Final = "name"
MOUNTED: Final = Q(mounts__problem="", mounts__session__ended_at=None)
SORTS: Final = {
    "name": ("name", "id"),
    "-name": ("-name", "id"),
    "size": ("used_bytes", "name"),
    "-size": ("-used_bytes", "name"),
    "created": ("created_at", "id"),
    "-created": ("-created_at", "id"),
}


class FolderTab(StrEnum):
    """The tabs of the list of folders."""

    MINE = "mine"
    SHARED = "shared"
    TRASH = "trash"


@dataclass(frozen=True, slots=True)
class StorageBar:
    """How much of a storage root a user's folders take."""

    root: StorageRoot
    use: StorageUse


@dataclass(frozen=True, slots=True)
class RootChoice:
    """A storage root on which a folder may be created; `free_bytes` is None where no host has measured it."""

    root: StorageRoot
    hosts: tuple[str, ...]
    free_bytes: int | None
    problem: str


def in_tab(user: User, tab: FolderTab) -> FolderQuerySet:
    """Return the user's folders, those of projects and shared with them, or those that they manage in the trash."""
    if tab == FolderTab.MINE:
        return Folder.objects.live().filter(owner=user)
    if tab == FolderTab.SHARED:
        return Folder.objects.live().readable_by(user).exclude(owner=user)
    return Folder.objects.trashed().filter(Folder.objects.managed_by(user))


def listed(user: User, tab: FolderTab, sort: str) -> FolderQuerySet:
    """Return the folders of a tab with `session_count`, `share_count` and, if shared with the user, `is_read_only`."""
    my_share = FolderShare.objects.filter(folder=OuterRef("pk"), user=user).values("is_read_only")[:1]
    folders = in_tab(user, tab).select_related("root", "owner", "project")
    return folders.annotate(
        share_count=Count("shares", distinct=True),
        session_count=Count("mounts__session", filter=MOUNTED, distinct=True),
        is_read_only=Subquery(my_share),
    ).order_by(*SORTS.get(sort, SORTS[DEFAULT_SORT]))


def tab_counts(user: User) -> dict[FolderTab, int]:
    """Return how many folders each tab lists."""
    return {tab: in_tab(user, tab).count() for tab in FolderTab}


def storage_bars(user: User) -> list[StorageBar]:
    """Return the user's use of each root that is offered or that has folders of theirs."""
    own = Folder.objects.filter(root=OuterRef("pk"), owner=user)
    shown = StorageRoot.objects.filter(Q(is_enabled=True) | Q(Exists(own)))
    uses, policy = storage_uses(user), user.policy
    unused = StorageUse(max_bytes=policy.storage_bytes, max_files=policy.storage_files)
    return [StorageBar(root, uses.get(root.pk, unused)) for root in shown]


def storage_warnings(user: User, bars: Iterable[StorageBar]) -> list[str]:
    """Return what is wrong with storage that the user's folders lie on; for a superadmin with any storage.

    A query for each root, and two more for a superadmin.
    """
    reached = StorageRoot.objects.filter(Exists(Folder.objects.live().readable_by(user).filter(root=OuterRef("pk"))))
    texts = [exceeded_text(bar.root) for bar in bars if bar.use.is_exceeded]
    for root in reached:
        problem = storage.unavailable_reason(root)
        if not (problem or user.is_superuser):
            problem = roots.sessions_problem(root)
        texts += [problem] if problem else []
    return texts + (roots.warnings() if user.is_superuser else [])


def root_choices() -> list[RootChoice]:
    """Return the roots that take new folders, the default one first."""
    hosts = HostRoot.objects.filter(is_present=True).select_related("host")
    present: dict[int, list[HostRoot]] = {}
    for each in hosts.order_by("root", F("host__name")):
        present.setdefault(each.root_id, []).append(each)
    offered = StorageRoot.objects.filter(is_enabled=True)
    return [_choice(root, present.get(root.pk, [])) for root in offered]


def _choice(root: StorageRoot, present: Iterable[HostRoot]) -> RootChoice:
    known = list(present)
    free = [each.free_bytes for each in known if each.free_bytes is not None]
    return RootChoice(
        root=root,
        hosts=tuple(each.host.name for each in known),
        free_bytes=min(free) if free else None,
        problem=storage.unavailable_reason(root) or roots.sessions_problem(root),
    )
