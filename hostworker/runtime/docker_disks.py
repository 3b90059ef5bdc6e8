"""The disk that the Docker Engine keeps containers on: what is free, and what each container has written."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from docker.api import APIClient

from hostworker.runtime.base import DiskSpace, EngineUnreachableError, Key
from hostworker.runtime.docker_requests import label_filter, translated
from hostworker.runtime.docker_states import key_of


class DockerDisks:
    """Asks the engine, and the file system where the engine is on this machine."""

    def __init__(self, client: Callable[[], APIClient], owner: Mapping[str, str], engine_url: str) -> None:
        self._is_here = engine_url.startswith("unix://")
        self._client = client
        self._owner = owner
        self._root: Path | None = None

    def space(self) -> DiskSpace | None:
        """Return the space of the engine's disk, None where that is on another machine; see HostDisks."""
        if not self._is_here:
            return None
        with translated(EngineUnreachableError):
            self._root = self._root or Path(self._client().info()["DockerRootDir"])
        try:
            found = os.statvfs(self._root)
        except OSError:
            return None
        return DiskSpace(free_bytes=found.f_bavail * found.f_frsize, total_bytes=found.f_blocks * found.f_frsize)

    def written_bytes(self) -> dict[Key, int]:
        """Return the sizes of writable layers; the engine walks each of them. See HostDisks."""
        with translated(EngineUnreachableError):
            listed = self._client().containers(
                size=True, filters={"label": label_filter(self._owner), "status": ["running"]}
            )
        return {key: int(each.get("SizeRw") or 0) for each in listed if (key := key_of(each["Labels"]))}
