"""The disk that the Docker Engine keeps containers on: what is free, and what each container has written."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from docker.api import APIClient
from docker.errors import APIError

from engine.containers import container_name
from hostworker.privileged.base import PrivilegesError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.container_config import without_quota
from hostworker.runtime.docker.quotas import is_refusal, quota_problem, storage_root
from hostworker.runtime.docker.states import key_of
from hostworker.runtime.engine_requests import explanation, has_labels, inspect, label_filter, translated
from hostworker.runtime_protocol import DiskSpace, EngineUnreachableError, Key

logger = logging.getLogger(__name__)


class DockerDisks:
    """Asks the engine, and the file system where the engine is on this machine. Implements HostDisks."""

    def __init__(
        self,
        client: Callable[[], APIClient],
        owner: Mapping[str, str],
        engine_url: str,
        privileges: HostPrivileges,
        written_beside: Callable[[], Mapping[Key, int]] = dict,
    ) -> None:
        """`written_beside` returns the bytes that sessions have written to files of the host worker's."""
        self._written_beside = written_beside
        self._privileges = privileges
        self._is_here = engine_url.startswith("unix://")
        self._client = client
        self._owner = owner
        self._root: Path | None = None
        self._has_quotas: bool | None = None  # None until it is known

    def has_quotas(self) -> bool:
        """Return whether the engine bounds what containers write, as it reports it; one request, the first time."""
        if self._has_quotas is None:
            problem = quota_problem(self._client().info(), is_here=self._is_here)
            self._has_quotas = not problem
            logger.info("what sessions write is %s", f"watched: {problem}" if problem else "bounded by the engine")
        return self._has_quotas

    def create(self, config: Mapping[str, object], name: str) -> Mapping[str, object]:
        """Create a container, without a bound on what it writes where the engine refuses that. Raises APIError."""
        created: Mapping[str, object]
        try:
            created = self._client().create_container_from_config(config, name)
        except APIError as error:
            if not self.is_quota_refused(explanation(error)):
                raise
            created = self._client().create_container_from_config(without_quota(config), name)
        return created

    def is_quota_refused(self, message: str) -> bool:
        """Return whether the engine's error says that it cannot after all, so that no more is asked of it."""
        if not (self._has_quotas and is_refusal(message)):
            return False
        logger.warning("what sessions write is watched, since the engine cannot bound it: %s", message)
        self._has_quotas = False
        return True

    def space(self) -> DiskSpace | None:
        """Return the space of the engine's disk, None where that is on another machine."""
        if not self._is_here:
            return None
        with translated(EngineUnreachableError):
            self._root = self._root or storage_root(self._client().info())
        try:
            found, device = os.statvfs(self._root), os.stat(self._root).st_dev
        except OSError:
            return None
        return DiskSpace(
            free_bytes=found.f_bavail * found.f_frsize,
            total_bytes=found.f_blocks * found.f_frsize,
            free_files=found.f_favail,
            total_files=found.f_files,
            device=device,
        )

    def written_bytes(self) -> dict[Key, int]:
        """Return the sizes of writable layers, and what lies beside; the engine walks each layer. See HostDisks."""
        with translated(EngineUnreachableError):
            listed = self._client().containers(
                size=True, filters={"label": label_filter(self._owner), "status": ["running"]}
            )
        beside = self._written_beside()
        layers = {key: int(each.get("SizeRw") or 0) for each in listed if (key := key_of(each["Labels"]))}
        return {key: size + beside.get(key, 0) for key, size in layers.items()}

    def made_files(self, limits: Mapping[Key, int | None]) -> dict[Key, int]:
        """Ask for each layer's files where the engine is on this machine; one request each. See HostDisks."""
        found = {}
        for key, limit in limits.items() if self._is_here else ():
            with translated(EngineUnreachableError):
                container = inspect(self._client(), container_name(*key))
            if container is None or not has_labels(container, self._owner) or not container["State"]["Running"]:
                continue
            try:
                count = self._privileges.bound_files(int(container["State"]["Pid"]), limit)
            except PrivilegesError as error:
                logger.warning("files that sessions make are not counted: %s", error)
                break
            if count is not None:
                found[key] = count
        return found
