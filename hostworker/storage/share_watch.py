"""Takes folders out of running sessions whose shares or memberships ended, and makes those read-only that became so.

Shares are looked at every few seconds instead of being followed: a change is found whoever made it, and also by a
worker that was away.
"""

import logging
from collections import Counter
from pathlib import Path
from typing import Final

from django.db.models import F, QuerySet

from accounts.models import Membership
from folders.models import Folder, FolderShare
from folders.storage.paths import root_directory
from hostworker.containers import runner
from hostworker.runtime_protocol import MountError, Runtime
from resources.models import Host
from sessions import notify
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Mount

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 3.0
MAX_FAILURES: Final = 3  # in a row, after which the session is ended, as its folder cannot be taken out of it
MAX_HELD: Final = 20  # polls in a row, a minute, for programs to end that write to what became read-only
WITHDRAWN: Final = "Its owner has withdrawn it."
LEFT: Final = "The owner of this session is no longer a member of the project that it belongs to."
CANNOT_TAKE_AWAY: Final = "A folder that it mounts was withdrawn, and its host could not take it out of the session."
STILL_WRITTEN: Final = "A folder that it mounts became read-only, and its programs went on writing to it."


class ShareWatch:
    """The folders of others in one host's running sessions."""

    def __init__(self, runtime: Runtime, host: Host) -> None:
        self._runtime = runtime
        self._host = host
        self._failures: Counter[int] = Counter()  # by mount
        self._held: Counter[int] = Counter()  # by mount: in how many polls its programs have kept it writable

    def poll(self) -> None:
        """Compare the mounts with shares and members. Raises EngineUnreachableError; the next poll continues.

        One query where no session mounts a folder that is not its owner's, else three.
        """
        related = ("session", "folder__root", "folder__owner", "folder__project")
        rows = list(foreign_mounts(self._host).select_related(*related).defer("folder__owner__password"))
        if not rows:
            return
        shares = FolderShare.objects.filter(folder__in={row.folder_id for row in rows}).order_by()
        rights = {
            (folder_id, user_id): ro for folder_id, user_id, ro in shares.values_list("folder", "user", "is_read_only")
        }
        projects = {row.folder.project_id for row in rows if row.folder}
        members = set(Membership.objects.filter(project__in=projects).order_by().values_list("project", "user"))
        for row in rows:
            if row.folder and (row.folder.project_id, row.session.owner_id) in members:
                continue
            is_read_only = rights.get((row.folder_id or "", row.session.owner_id))
            if is_read_only is None:
                self._act(row, is_withdrawn=True)
            elif is_read_only and not row.is_read_only:
                self._act(row, is_withdrawn=False)

    def _act(self, row: Mount, *, is_withdrawn: bool) -> None:
        """Change the mount of a session that still runs, and store that; try again later where that fails."""
        session, folder = row.session, row.folder
        assert folder is not None
        with runner.container_lock(session.pk):
            try:
                if is_withdrawn:
                    self._runtime.mount_control.take_away(session.pk, session.attempt, _source(folder))
                elif not self._runtime.mount_control.set_read_only(
                    session.pk, session.attempt, _source(folder), read_only=True
                ):
                    return self._note_held(row)
            except MountError as error:
                self._note_failure(row, error)
                return
        self._failures.pop(row.pk, None)
        self._held.pop(row.pk, None)
        changes = {"problem": LEFT if folder.project_id else WITHDRAWN} if is_withdrawn else {"is_read_only": True}
        Mount.objects.filter(pk=row.pk).update(**changes)
        notify.sessions_changed([(session.pk, session.owner_id, session.project_id)])
        logger.info("session %s: folder %s is %s", session.pk, folder.pk, "taken away" if is_withdrawn else "read-only")

    def _note_held(self, row: Mount) -> None:
        """Wait for the programs that have been told to end, but not for ever."""
        self._held[row.pk] += 1
        if self._held[row.pk] >= MAX_HELD:
            services.end(row.session, Reason.MOUNT_FAILED, STILL_WRITTEN)

    def _note_failure(self, row: Mount, error: MountError) -> None:
        logger.warning("session %s: a withdrawn folder is still mounted: %s", row.session_id, error)
        self._failures[row.pk] += 1
        if self._failures[row.pk] >= MAX_FAILURES:
            services.end(row.session, Reason.MOUNT_FAILED, CANNOT_TAKE_AWAY)


def foreign_mounts(host: Host) -> QuerySet[Mount]:
    """Return the mounts in this host's running sessions of folders that are not the sessions' owners'."""
    mounted = Mount.objects.filter(session__host=host, session__status=Status.RUNNING, problem="")
    return mounted.exclude(folder=None).exclude(folder__owner=F("session__owner"))


def _source(folder: Folder) -> Path:
    """Return the directory that sessions mount, unseen: its storage may not answer."""
    return Path(root_directory(folder.root).files_path(folder.holder_number, folder.pk))
