"""The data folders that sessions mount: what a request may mount, and the rows of the sessions that it makes."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import product
from typing import Final, NamedTuple

from django.db import connection
from django.db.models import Count, Q, QuerySet

from accounts.models import User
from folders.models import Folder, FolderShare, HostRoot, StorageRoot
from folders.mount_paths import absolute_path, overlapping, path_error
from folders.names import AUTOMOUNT_PREFIX
from resources.amounts.units import listing
from resources.models import Host, ResourceGroup
from resources.totals import possible_hosts
from sessions.launching.validation import MAX_MOUNTS
from sessions.models import Mount, Session

# Asked at each launch, most of which mount nothing. As text: Django takes longer to compile a query than this takes.
_HAS_AUTOMATIC: Final = (
    "EXISTS (SELECT FROM folders_folder WHERE owner_id = %s AND trashed_at IS NULL AND starts_with(name, %s))"
)
_HAS_MOUNTS: Final = "EXISTS (SELECT FROM compute_mount WHERE session_id = %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """A folder to mount, with its root, at `path`: absolute, or seen from the home folder; empty: the folder's name."""

    folder: Folder
    path: str = ""
    is_read_only: bool | None = None  # None: only where the folder is shared read-only

    @property
    def absolute_path(self) -> str:
        """The path in the container."""
        return absolute_path(self.path, self.folder.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlan:
    """What the sessions of a request mount, and what is wrong with it."""

    mounts: Sequence[Mount] = ()  # without a session yet
    required_roots: Sequence[int] = ()  # ids of the storage roots of the folders that were asked for
    wanted_roots: Sequence[int] = ()  # of those that are mounted automatically
    problems: dict[int, str] = field(default_factory=dict)  # by position in the request

    def rows(self, sessions: Iterable[Session]) -> Iterator[Mount]:
        """Yield the rows of these sessions, unsaved."""
        for session, mount in product(sessions, self.mounts):
            row = copy(mount)
            row.session = session
            yield row


def automatic_folders(owner_id: int) -> list[Folder]:
    """Return the folders that every session of the user mounts, with their roots; one query, two if there are any."""
    if not _is_any(_HAS_AUTOMATIC, owner_id, AUTOMOUNT_PREFIX):
        return []
    folders = Folder.objects.live().filter(owner=owner_id, name__startswith=AUTOMOUNT_PREFIX).select_related("root")
    return [folder for folder in folders if not path_error(absolute_path("", folder.name))]


class OfferedFolder(NamedTuple):
    """A folder that a user may mount."""

    folder: Folder
    is_read_only: bool  # because it is shared so
    is_automatic: bool  # every session of the user mounts it


def offered_folders(user: User) -> list[OfferedFolder]:
    """Return the folders that the user may mount, with owners and roots: their own first; three queries at most."""
    folders = list(Folder.objects.readable_by(user).filter(trashed_at=None).select_related("owner", "project", "root"))
    shares = _shares(user.pk, folders)
    folders.sort(key=lambda folder: folder.owner_id != user.pk)
    return [
        OfferedFolder(
            folder,
            is_read_only=shares.get(folder.pk, False),
            is_automatic=folder.owner_id == user.pk
            and folder.is_automounted
            and not path_error(absolute_path("", folder.name)),
        )
        for folder in folders
    ]


class SettledMounts(NamedTuple):
    """What a session that is about to start mounts, and a sentence for each folder that it asked for in vain."""

    mounts: Sequence[tuple[Mount, Folder]] = ()
    refused: Sequence[str] = ()


def settle(session: Session) -> SettledMounts:
    """Bring the mounts of a session that is about to start up to date with the folders and shares of its owner.

    Since it was submitted, folders may have been renamed, deleted or withdrawn, and others may have come that are
    mounted automatically. One query where it mounts nothing.
    """
    if not _is_any(f"{_HAS_MOUNTS} OR {_HAS_AUTOMATIC}", session.pk, session.owner_id, AUTOMOUNT_PREFIX):
        return SettledMounts()
    rows = list(session.mounts.select_related("folder__root"))
    own = {folder.pk: folder for folder in automatic_folders(session.owner_id)}
    asked = [row for row in rows if not row.is_automatic]
    shares = _shares(session.owner_id, [row.folder for row in asked if row.folder])
    found, refused = [], []
    for row in asked:
        problem = _access_problem(session.owner_id, row.folder, shares) if row.folder else "it was deleted."
        if problem or row.folder is None:
            refused.append(f"{row.folder_name}: {problem}")
            continue
        if shares.get(row.folder.pk) and not row.is_read_only:
            row.is_read_only = True
            row.save(update_fields=["is_read_only"])
        found.append((row, row.folder))
    return SettledMounts([*found, *_settle_automatic(session, rows, own)], refused)


def _settle_automatic(
    session: Session, rows: Sequence[Mount], own: dict[str, Folder]
) -> Iterator[tuple[Mount, Folder]]:
    """Yield the automatic mounts, after removing the rows of those that are none any more and adding the new ones."""
    paths = {row.path for row in rows if not row.is_automatic}
    used = {row.folder_id for row in rows if not row.is_automatic}
    for row in rows:
        folder = own.get(row.folder_id or "")
        if not row.is_automatic:
            continue
        if folder is not None and row.path == absolute_path("", folder.name):
            used.add(folder.pk)
            yield row, folder
        else:
            row.delete()
    for folder in own.values():
        path = absolute_path("", folder.name)
        if folder.pk not in used and overlapping(path, paths) is None:
            mount = Mount(session=session, folder=folder, folder_name=folder.name, path=path, is_automatic=True)
            mount.save()
            yield mount, folder


def folders_named(user: User, names: Collection[str]) -> dict[str, Folder]:
    """Return {name: folder} for ids of folders that the user may read, and for names of the user's own; one query."""
    readable = Folder.objects.readable_by(user).filter(Q(pk__in=names) | Q(owner=user, name__in=names))
    folders = list(readable.filter(trashed_at=None).select_related("root"))
    own = {folder.name: folder for folder in folders if folder.owner_id == user.pk and folder.name in names}
    return own | {folder.pk: folder for folder in folders if folder.pk in names}


def _is_any(condition: str, *parameters: str | int) -> bool:
    """Return whether an SQL condition is true."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {condition}", parameters)
        return bool(cursor.fetchone()[0])


def plan(owner: User, requests: Sequence[MountRequest]) -> MountPlan:
    """Return what sessions of `owner` would mount; one query, and another where a folder of somebody else is asked for.

    A folder that is asked for is not mounted automatically as well.
    """
    asked = {each.folder.pk for each in requests}
    always = [folder for folder in automatic_folders(owner.pk) if folder.pk not in asked]
    shares = _shares(owner.pk, [each.folder for each in requests])
    mounts: list[Mount] = []
    taken = {absolute_path("", folder.name): folder for folder in always}
    problems: dict[int, str] = {}
    for position, each in enumerate(requests):
        path = each.absolute_path
        problem = _access_problem(owner.pk, each.folder, shares) or _place_problem(path, mounts, taken, each.folder)
        is_shared_read_only = shares.get(each.folder.pk, False)
        if not problem and is_shared_read_only and each.is_read_only is False:
            problem = "it is shared with you read-only."
        if problem:
            problems[position] = f"{each.folder.name}: {problem}"
        mounts.append(
            Mount(
                folder=each.folder,
                folder_name=each.folder.name,
                path=path,
                is_read_only=bool(each.is_read_only or is_shared_read_only),
            )
        )
    mounts += [
        Mount(folder=folder, folder_name=folder.name, path=path, is_automatic=True) for path, folder in taken.items()
    ]
    return MountPlan(
        mounts=mounts,
        required_roots=sorted({each.folder.root_id for each in requests}),
        wanted_roots=sorted({folder.root_id for folder in taken.values()}),
        problems=problems,
    )


def lock_folders(planned: MountPlan) -> bool:
    """Lock the folders, so that none is deleted before the transaction ends; return whether all are still there."""
    wanted = {mount.folder_id for mount in planned.mounts}
    live = Folder.objects.live().select_for_update(no_key=True).filter(pk__in=wanted).order_by("pk")
    return len(live) == len(wanted)


def errors(group: ResourceGroup | None, requests: Sequence[MountRequest], planned: MountPlan) -> list[str]:
    """Return all that is wrong with the folders of a request, a sentence each. At most one query.

    Without a group, hosts are not looked at.
    """
    found = [planned.problems[position] for position in sorted(planned.problems)]
    if len(requests) > MAX_MOUNTS:
        found.append(f"A session mounts at most {MAX_MOUNTS} folders beside those that are always mounted.")
    if group and planned.required_roots and (missing := missing_storage_text(group, requests)):
        found.append(missing)
    return found


def missing_storage_text(group: ResourceGroup, requests: Sequence[MountRequest]) -> str:
    """Return that no host of the group has all the storage roots at once, or ""."""
    names = {each.folder.root_id: each.folder.root.name for each in requests}
    present = HostRoot.objects.filter(host__group=group, is_present=True, root__in=names).order_by()
    on_host: dict[int, set[int]] = {}
    for host_id, root_id in present.values_list("host_id", "root_id"):
        on_host.setdefault(host_id, set()).add(root_id)
    if possible_hosts(group):  # hosts that are made mount what is shared
        shared = StorageRoot.objects.filter(is_shared=True, pk__in=names).order_by()
        on_host[0] = {*shared.values_list("pk", flat=True)}
    if any(roots >= names.keys() for roots in on_host.values()):
        return ""
    nowhere = names.keys() - set().union(*on_host.values()) or names.keys()
    folders = listing([each.folder.name for each in requests if each.folder.root_id in nowhere])
    roots = listing(sorted(names[root_id] for root_id in nowhere))
    return f"No host of the resource group {group} has the storage {roots} of {folders} now: choose another group."


def with_roots(hosts: QuerySet[Host], root_ids: Sequence[int]) -> QuerySet[Host]:
    """Return those of the hosts that have all of these storage roots."""
    present = HostRoot.objects.filter(is_present=True, root__in=root_ids).order_by().values("host")
    return hosts.filter(pk__in=present.annotate(roots=Count("pk")).filter(roots=len(root_ids)).values("host"))


def _shares(user_id: int, folders: Collection[Folder]) -> dict[str, bool]:
    """Return {folder id: whether it is read-only} of those of the folders that shares or projects let the user use."""
    others = [folder.pk for folder in folders if folder.owner_id != user_id]
    if not others:
        return {}
    shares = FolderShare.objects.filter(folder__in=others, user=user_id).order_by()
    found = dict(shares.values_list("folder_id", "is_read_only"))
    if any(folder.project_id for folder in folders):
        joined = Folder.objects.filter(pk__in=others, project__memberships__user=user_id).order_by()
        found |= dict.fromkeys(joined.values_list("pk", flat=True), False)
    return found


def _access_problem(user_id: int, folder: Folder, shares: dict[str, bool]) -> str | None:
    if folder.owner_id != user_id and folder.pk not in shares:
        return "it is neither yours nor of a project of yours nor shared with you."
    return "it is in the trash." if folder.trashed_at is not None else None


def _place_problem(path: str, before: Sequence[Mount], taken: dict[str, Folder], folder: Folder) -> str | None:
    """Return why a folder cannot be mounted there, beside those before it and those that are always mounted."""
    if wrong := path_error(path):
        return wrong
    if any(mount.folder == folder for mount in before):
        return "a session mounts a folder once."
    if other := overlapping(path, [mount.path for mount in before]):
        return (
            f"{path} is taken: another folder is mounted at {other}."
            if other == path
            else (f"{path} and {other}, where another folder is mounted, lie in one another.")
        )
    if other := overlapping(path, taken):
        return f"{path} is taken by your folder {taken[other].name}, which every session of yours mounts at {other}."
    return None
