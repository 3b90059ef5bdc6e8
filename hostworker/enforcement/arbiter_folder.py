"""The folder that host worker and arbiter have in common: a lease, a grant page and a socket for each gated session.

<folder>/<session>-<attempt>/lease.conf    what the limits file says; the arbiter knows a session by it
                             grant         the page that the arbiter writes, bound read-only into the container
                             socket/       the arbiter's socket, bound read-only as a folder: it makes it anew
<folder>/lock                              held by the arbiter that runs, with its pid and build
<folder>/status                            what it has charged, rewritten every second
"""

import hashlib
import logging
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fgpu.mounts import ArbiterFiles
from hostworker.enforcement.programs import write_whole
from hostworker.runtime_protocol import Key
from resources import procfs

logger = logging.getLogger(__name__)

GRANT_BYTES: Final = 4096  # struct grant_page in fgpu/src/grant.h
LEASE: Final = "lease.conf"
GRANT: Final = "grant"
SOCKETS: Final = "socket"
LOCK: Final = "lock"
STATUS: Final = "status"
MEMORY_FOLDERS: Final = (Path("/run"), Path("/dev/shm"))  # noqa: S108  # files of this boot, on no disk
_NAME: Final = re.compile(r"(?P<session>.+)-(?P<attempt>[0-9]+)")
_SHARING: Final = re.compile(r"^sharing=\w+$", re.MULTILINE)
_CHARGE: Final = re.compile(r"^session=(\S+)-[0-9]+ dev=(\S+) occupied_ns=([0-9]+) unheld_ns=([0-9]+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The nanoseconds of one GPU that the arbiter has charged to one session since the arbiter's start."""

    total: int
    unheld: int  # of it, what the session said it used far from any turn of its own


@dataclass(frozen=True, slots=True)
class ArbiterFolder:
    """The sessions of this host that the arbiter gives turns; `root` belongs to this host worker alone."""

    root: Path

    def prepare(self, key: Key, lease: str) -> ArbiterFiles:
        """Write the files of an attempt, or leave them where they are: its container may have them. Raises OSError."""
        folder = self._of(key)
        own_folder(self.root)
        (folder / SOCKETS).mkdir(parents=True, exist_ok=True)
        if not (folder / GRANT).exists():
            write_whole(folder / GRANT, bytes(GRANT_BYTES), 0o644)
        if not (folder / LEASE).exists():  # last: with it, the session is the arbiter's
            write_whole(folder / LEASE, lease.encode(), 0o444)
        return ArbiterFiles(grant=folder / GRANT, socket_folder=folder / SOCKETS)

    def keys(self) -> set[Key]:
        """Return the attempts of which there are files."""
        matches = (_NAME.fullmatch(folder.name) for folder in self.root.glob("*-*"))
        return {(match["session"], int(match["attempt"])) for match in matches if match}

    def set_lease(self, key: Key, lease: str) -> None:
        """Replace the lease of a session that has one, which the arbiter takes at its next look. Raises OSError."""
        path = self._of(key) / LEASE
        if path.exists() and path.read_text() != lease:
            write_whole(path, lease.encode(), 0o444)

    def set_sharing(self, sharing: str) -> bool:
        """Have every session's lease say what becomes of idle time; return whether one has changed."""
        has_changed = False
        for key in self.keys():
            path = self._of(key) / LEASE
            try:
                lease = path.read_text()
                changed = _SHARING.sub(f"sharing={sharing}", lease)
                if changed != lease:
                    write_whole(path, changed.encode(), 0o444)
                    has_changed = True
            except OSError as error:  # it has just ended
                logger.debug("session %s: its lease is left as it is: %s", key[0], error)
        return has_changed

    def discard(self, key: Key) -> None:
        """Remove the attempt's files; gone already is success."""
        shutil.rmtree(self._of(key), ignore_errors=True)

    def grant_pages(self) -> list[Path]:
        """Return the grant pages of all sessions."""
        return [self._of(key) / GRANT for key in self.keys()]

    def charged(self) -> dict[tuple[str, str], Charge]:
        """Return what the arbiter has charged since its start, by session and GPU UUID."""
        try:
            text = (self.root / STATUS).read_text()
        except OSError:
            return {}
        found = _CHARGE.findall(text)
        return {(session, uuid): Charge(total=int(total), unheld=int(unheld)) for session, uuid, total, unheld in found}

    def _of(self, key: Key) -> Path:
        return self.root / f"{key[0]}-{key[1]}"


def folder_for(configured: str, enforcer_root: Path) -> Path:
    """Return where the arbiter's folder is: as configured, else on a file system in memory, else below `enforcer_root`.

    On a disk it works as well, but the kernel writes the pages back, which can delay whoever changes them.
    """
    if configured:
        return Path(configured)
    name = f"gpuplatform-{hashlib.sha256(str(enforcer_root.resolve()).encode()).hexdigest()[:16]}"
    kinds = {mount.point: mount.kind for mount in procfs.mounts()}
    usable = (path for path in MEMORY_FOLDERS if kinds.get(str(path)) == "tmpfs" and os.access(path, os.W_OK))
    parent = next(usable, None)
    return parent / name if parent else enforcer_root / "arbiter"


def own_folder(path: Path) -> None:
    """Make the folder, for this process's user alone to write. Raises OSError, also where it is somebody else's."""
    path.mkdir(mode=0o711, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{path} is not a folder of the host worker's own")
