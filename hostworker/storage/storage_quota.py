"""Holds users to their storage quota on this host: by the file system where it can, else by read-only mounts.

A file system that cannot enforce a quota is watched: once more is measured than allowed, the folders of that user on
that root turn read-only in running containers until they take less again. A file that is open for writing keeps its
mount writable; well beyond the quota its process is ended. What the file system enforces is watched with that
tolerance, since the user of a container may give files to another project.
"""

import logging
from pathlib import Path
from typing import Final

from django.db.models import QuerySet

from accounts.models import Project, User
from folders.files.kernel_quota import project_number
from folders.models import Folder, HostRoot, QuotaSupport, StorageRoot, number_of
from folders.quotas import rules as quota
from folders.quotas.rules import StorageUse
from folders.storage import paths as storage
from hostworker.containers import runner
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime_protocol import MountError, Runtime
from hostworker.terminals.notice import write_to_terminals
from resources.models import Host
from sessions import notify
from sessions.lifecycle import Status
from sessions.models import Mount

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 10.0
TOLERANCE: Final = 1.1  # times the quota, beyond which writing processes are ended

Limits = tuple[int | None, int | None]


class StorageQuotas:
    """The quotas of users on the storage roots of one host."""

    def __init__(self, runtime: Runtime, host: Host, privileges: HostPrivileges) -> None:
        self._runtime = runtime
        self._host = host
        self._privileges = privileges
        self._limits: dict[
            tuple[int, int], Limits
        ] = {}  # (root, number of the holder): as last passed to the file system

    def hold_mounts(self) -> None:
        """Make the mounts of users over their quota read-only, and those of others writable; safe to repeat."""
        enforced = set(enforced_roots(self._host).values_list("root", flat=True))
        uses: dict[int, dict[int, StorageUse]] = {}  # by number of the holder, then root
        related = ("session", "folder__owner__policy", "folder__project__policy", "folder__root")
        for mount in writable_mounts(self._host).select_related(*related).defer("folder__owner__password"):
            folder = mount.folder
            if folder is None or not (mount.is_held_read_only or quota.limits_of(folder.holder) != (None, None)):
                continue
            if folder.holder_number not in uses:
                uses[folder.holder_number] = quota.storage_uses(folder.holder)
            use = uses[folder.holder_number].get(folder.root_id, StorageUse())
            is_over = use.exceeds(TOLERANCE) if folder.root_id in enforced else use.is_exceeded
            if is_over or mount.is_held_read_only:
                self._hold(mount, folder, use, read_only=is_over)

    def limit_owners(self, root: StorageRoot) -> None:
        """Pass the limits of all users and projects with folders on the root to its file system.

        Raises the first OSError once all of them were tried.
        """
        users = User.objects.filter(folders__root=root).select_related("policy").defer("password").distinct()
        projects = Project.objects.filter(folders__root=root).select_related("policy").distinct()
        failures = []
        for number, holder in ((number_of(each), each) for each in (*users, *projects)):
            key, limits = (root.pk, number), quota.limits_of(holder)
            if self._limits.get(key) == limits:
                continue
            try:
                if self._privileges.limit_storage(Path(root.path), number, project_number(*key), *limits):
                    self._limits[key] = limits
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _hold(self, mount: Mount, folder: Folder, use: StorageUse, *, read_only: bool) -> None:
        """Change the mount of a session that still runs, unless its right to write has ended meanwhile."""
        session = mount.session
        source = Path(storage.root_directory(folder.root).files_path(folder.holder_number, folder.pk))
        with runner.container_lock(session.pk):
            current = Mount.objects.filter(pk=mount.pk, problem="", is_read_only=False)
            if not current.filter(session__status=Status.RUNNING).exists():
                return
            try:
                is_done = self._runtime.mount_control.set_read_only(
                    session.pk, session.attempt, source, read_only=read_only, end_writers=use.exceeds(TOLERANCE)
                )
            except MountError as error:
                logger.warning("session %s: folder %s: %s", session.pk, folder.pk, error)
                return
            if not is_done or mount.is_held_read_only == read_only:
                return
            current.update(is_held_read_only=read_only)
        logger.info("session %s: folder %s is held read-only: %s", session.pk, folder.pk, read_only)
        notify.sessions_changed([(session.pk, session.owner_id, session.project_id)])
        text = quota.held_text(folder, mount.path) if read_only else f"{mount.path} is writable again."
        write_to_terminals(self._runtime, session, text)


def writable_mounts(host: Host) -> QuerySet[Mount]:
    """Return the mounts of folders that this host's running sessions may write to, or may once there is room."""
    mounts = Mount.objects.filter(session__host=host, session__status=Status.RUNNING, problem="", is_read_only=False)
    return mounts.exclude(folder=None)


def enforced_roots(host: Host) -> QuerySet[HostRoot]:
    """Return the roots of this host whose file systems enforce quotas."""
    return HostRoot.objects.filter(host=host, quota_support=QuotaSupport.ENFORCED)
