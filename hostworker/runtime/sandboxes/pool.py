"""Network sandboxes: each session joins one, and some are made ready before they are needed.

A sandbox is a container that does nothing but hold a network namespace and its address, so that the address is
nobody else's until the platform has dealt with the session's end; half of a container's start is making those. Its
name at the engine is its whole state, and renaming, which the engine does for one caller alone, moves it on: free ->
of one attempt -> removed, or free -> retired -> removed. So it serves one session at most, whichever workers come, go
and die; see docs/adr/0007.
"""

from collections.abc import Callable, Mapping

from docker.api import APIClient
from docker.errors import APIError, NotFound

from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME
from hostworker.runtime.engine_requests import BAD_REQUEST, CONFLICT, retry_on_conflict
from hostworker.runtime.sandboxes import image as sandbox_image
from hostworker.runtime.sandboxes.containers import Sandbox, SandboxContainers, address_in
from hostworker.runtime.sandboxes.keeper import SandboxKeeper
from hostworker.runtime.sandboxes.state import SandboxState
from hostworker.runtime_protocol import Key, StartError


class SandboxPool:
    """The sandboxes of one installation and host on one engine; `size` of them are kept free while `keep` runs.

    Safe to use from many threads, and beside other workers of the same host.
    """

    def __init__(
        self,
        client: Callable[[], APIClient],
        owner: Mapping[str, str],
        ensure_network: Callable[[], str],
        size: int,
        privileges: HostPrivileges,
    ) -> None:
        """`ensure_network` creates the network where it is missing and returns its name."""
        self.containers = SandboxContainers(client, owner, ensure_network)
        self.state = SandboxState()
        self.keeper = SandboxKeeper(self.state, self.containers, privileges, size if sandbox_image.is_possible() else 0)
        self.pause_background_work = self.state.pause_background_work
        self.restart, self.keep = self.containers.restart, self.keeper.run

    def take(self, key: Key, hostname: str) -> Sandbox | None:
        """Return a sandbox that is the attempt's alone from now on; one that is made now has the host name already.

        None where the machine runs none. It may have died meanwhile; see `restart`. Raises StartError, and what the
        SDK raises.
        """
        if not sandbox_image.is_possible():
            return None
        return self._take_free(key) or self.make_for(key, hostname or SANDBOX_HOSTNAME)

    def address(self, key: Key) -> str | None:
        """Return the IP address of the attempt's sandbox, which is its session's; None without one that runs."""
        sandbox = self.containers.find(key)
        return address_in(sandbox) if sandbox else None

    def discard(self, key: Key) -> None:
        """Remove the attempt's sandbox, if it has one; see `discard_container`."""
        if sandbox := self.containers.find(key):
            self.discard_container(sandbox["Id"])

    def discard_container(self, container_id: str) -> None:
        """Remove a container that nobody uses, or have `keep` do so once nothing starts, within some two seconds.

        A session that ends makes room for another, whose start is on its way and is not to share the engine with this.
        What is left when this process dies, or cannot be removed, the reconciler finds.
        """
        if not self.state.discard(container_id):
            self.containers.remove(container_id)

    def is_discarded(self, container_id: str) -> bool:
        """Return whether the container is to be removed, so that it counts as gone."""
        return container_id in self.state.discarded

    def keys(self) -> set[Key]:
        """Return the attempts that have a sandbox, save those whose removal is under way already."""
        return {key for key, sandbox in self.containers.used() if not self.is_discarded(sandbox["Id"])}

    def make_for(self, key: Key, hostname: str) -> Sandbox:
        """Return the attempt's sandbox: a new one, or what a worker that died has left it.

        What fails half-way is a trace of the attempt, and is removed with it.
        """
        for _ in retry_on_conflict():
            try:
                made = self.containers.create(self.containers.name_for(key), hostname)
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                existing = self.containers.find(key)
                if existing is None:  # it is only coming or just going, or a stranger's
                    continue
                made = str(existing["Id"])
                if self.is_discarded(made):
                    self.containers.remove(made)
                    continue
            return Sandbox(made, address_in(self.containers.start(made)))
        raise StartError(
            f"The name {self.containers.name_for(key)} stays reserved although no container of ours has it."
        )

    def _take_free(self, key: Key) -> Sandbox | None:
        """Return one of those that are ready; None where none is, or the attempt has one already."""
        while candidate := self.state.pop_free():
            name, sandbox = candidate
            try:
                self.containers.rename(name, key)
            except NotFound:  # gone, or another worker's
                continue
            except APIError as error:
                if error.status_code == BAD_REQUEST:  # it has that name now: another worker makes this same attempt
                    return None
                if error.status_code != CONFLICT:
                    raise
                self.state.add_free(name, sandbox)  # the attempt has one already, from a worker that died
                return None
            return sandbox
        return None
