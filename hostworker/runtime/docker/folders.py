"""Folders in running containers of the Docker Engine: made read-only, or taken away."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from engine.containers import container_name
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.engine_requests import has_labels, inspect, translated
from hostworker.runtime_protocol import EngineUnreachableError, MountError

logger = logging.getLogger(__name__)


class DockerFolders:
    """The mounts of the containers that have these labels; see MountControl."""

    def __init__(self, client: ProcessClient, owner: Mapping[str, str], privileges: HostPrivileges) -> None:
        self._client = client
        self._owner = dict(owner)
        self._privileges = privileges

    def set_read_only(
        self, session: str, attempt: int, source: Path, *, read_only: bool, end_writers: bool = True
    ) -> bool:
        with self._main_process(session, attempt) as pid:
            if pid is None or self._privileges.set_mount_read_only(pid, source, read_only):
                return True
            if end_writers:
                self._privileges.end_mount_writers(pid, source)
        return False

    def take_away(self, session: str, attempt: int, source: Path) -> None:
        with self._main_process(session, attempt) as pid:
            if pid is not None and (ended := self._privileges.take_mount_away(pid, source)):
                logger.info("session %s: ended what held its folder: %s", session, ", ".join(ended))

    def map_root(self, root: Path, key: str) -> Path:
        if problem := self._privileges.problem():
            raise MountError(f"Only root can let sessions have files in {root} as their own user's: {problem}")
        try:
            return self._privileges.map_root(root, key)
        except OSError as error:
            raise MountError(str(error)) from error

    def unmap_root(self, key: str) -> None:
        try:
            self._privileges.unmap_root(key)
        except OSError as error:
            raise MountError(str(error)) from error

    @contextmanager
    def _main_process(self, session: str, attempt: int) -> Iterator[int | None]:
        """Give the main process of the container, None if it does not run; raise MountError for what fails there."""
        with translated(EngineUnreachableError):
            container = inspect(self._client(), container_name(session, attempt))
        is_running = container is not None and has_labels(container, self._owner) and container["State"]["Running"]
        try:
            yield int(container["State"]["Pid"]) if container is not None and is_running else None
        except OSError as error:
            raise MountError(f"A folder cannot be changed in the running container: {error}") from error
