"""The background work on sandboxes: makes some ready before they are needed, and removes those that are not."""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from docker.errors import APIError

from hostworker.privileged.base import ContainerFiles, PrivilegesError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME
from hostworker.runtime.engine_requests import translated
from hostworker.runtime.sandboxes.containers import FREE, RETIRED, Sandbox, SandboxContainers, address_in
from hostworker.runtime.sandboxes.state import SandboxState
from hostworker.runtime_protocol import ContainerRuntimeError, StartError

logger = logging.getLogger(__name__)

STEP_SECONDS: Final = 0.1
RECONCILE_SECONDS: Final = 30.0
FAILURE_PAUSE_SECONDS: Final = 10.0


class SandboxKeeper:
    """Keeps `size` sandboxes free while `run` runs."""

    def __init__(
        self, state: SandboxState, containers: SandboxContainers, privileges: HostPrivileges, size: int
    ) -> None:
        self._state = state
        self._containers = containers
        self._privileges = privileges
        self._size = size
        self._reconciled_at = -RECONCILE_SECONDS
        self._last_failure = ""

    def run(self, stopped: threading.Event) -> None:
        """Remove what is discarded and make sandboxes while nothing starts, until `stopped`; then remove the free."""
        self._state.set_keeper(True)
        try:
            while not stopped.wait(STEP_SECONDS):
                if not self._succeeds(self._step):
                    stopped.wait(FAILURE_PAUSE_SECONDS)
        finally:
            self._state.set_keeper(False)
            self._succeeds(self._drain)

    def reconcile(self) -> None:
        """Adopt what an earlier worker left free, forget what is gone, remove what is dead, retired or too much."""
        listed = self._containers.list_by_name()
        free = {name: each for name, each in listed.items() if name.startswith(FREE)}
        alive = {
            name: Sandbox(each["Id"], address_in(each)) for name, each in free.items() if each["State"] == "running"
        }
        wanted = self._state.replace_free(alive, self._size)
        for name in free.keys() - wanted:
            self._containers.retire(name)
        for name in listed:
            if name.startswith(RETIRED):
                self._containers.remove(name)
        self._reconciled_at = time.monotonic()

    def _succeeds(self, step: Callable[[], None]) -> bool:
        """Take the step and return whether it went well; a failure is logged once: sessions start all the same."""
        try:
            with translated(StartError):
                step()
        except ContainerRuntimeError as failure:
            if str(failure) != self._last_failure:
                logger.warning("networks are not made ready, or containers not removed: %s", failure)
            self._last_failure = str(failure)
            return False
        self._last_failure = ""
        return True

    def _step(self) -> None:
        """Remove what is due, checking before each whether something starts; else do one thing that takes long."""
        if self._state.next_due():
            while due := self._state.next_due():
                self._remove_discarded(due)
        elif not self._state.is_quiet():
            return
        elif time.monotonic() - self._reconciled_at >= RECONCILE_SECONDS:
            self.reconcile()
        elif len(self._state.free) < self._size:
            self._make()

    def _remove_discarded(self, container_id: str) -> None:
        try:
            self._containers.remove(container_id)
        finally:  # what could not be removed is to be found again
            self._state.forget(container_id)

    def _drain(self) -> None:
        """Remove what is free or discarded, an earlier worker's too; what fails is left to the next worker."""
        self.reconcile()
        for container_id in tuple(self._state.discarded):
            self._remove_discarded(container_id)
        while candidate := self._state.pop_free():
            self._containers.retire(candidate[0])
        self._reconciled_at = -RECONCILE_SECONDS

    def _make(self) -> None:
        """Make one that is free."""
        name = f"{FREE}{secrets.token_hex(8)}"
        made = self._containers.create(name, SANDBOX_HOSTNAME)
        try:
            inspected = self._containers.start(made)
            is_nameable = self._privileges.can_name(ContainerFiles.of(inspected))
        except (APIError, StartError, PrivilegesError):
            self._containers.remove(made)
            raise
        if is_nameable:
            self._state.add_free(name, Sandbox(made, address_in(inspected)))
            return
        if self._containers.is_running(made):  # else another worker, which ends, has removed it meanwhile
            logger.warning(
                "no networks are made ready: this worker has no root on the engine's own host, as naming takes"
            )
            self._size = 0
        self._containers.remove(made)
