"""Keeps storage roots mounted for sessions whose files belong to another user than that of containers."""

import logging
from pathlib import Path

from folders.files.roots import RootState
from folders.models import StorageRoot
from hostworker.runtime_protocol import MountError, Runtime

logger = logging.getLogger(__name__)


class MappedRoots:
    """The roots of one host that sessions have through such a mount."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._keys: set[str] = set()

    def problem_of(self, root: StorageRoot, state: RootState) -> str:
        """Have the root, as it was found, mounted if need be; return why sessions cannot use it, as a sentence."""
        key = str(root.key)
        if state.problem or state.owner.is_container_user:
            self._let_go(key)  # so that its file system can be unmounted for good
            return state.problem
        try:
            self._runtime.mount_control.map_root(Path(root.path), key)
        except MountError as error:
            return str(error)
        self._keys.add(key)
        return ""

    def end(self) -> None:
        """Take the mounts away; running containers keep their folders."""
        for key in list(self._keys):
            self._let_go(key)

    def _let_go(self, key: str) -> None:
        if key in self._keys:
            try:
                self._runtime.mount_control.unmap_root(key)
            except MountError as error:
                logger.warning("storage root %s: is still mounted for sessions: %s", key, error)
            self._keys.discard(key)
