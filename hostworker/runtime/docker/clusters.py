"""Puts containers of the Docker Engine into the networks of their clusters: a container has that of its sandbox."""

from collections.abc import Callable, Collection
from pathlib import Path

from hostworker.cluster_protocol import ClusterPlace
from hostworker.clusters import member_files
from hostworker.privileged.base import ContainerFiles
from hostworker.privileged.cluster_network import reachability
from hostworker.privileged.firewall import FirewallError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.engine_requests import translated
from hostworker.runtime.sandboxes.pool import SandboxPool
from hostworker.runtime_protocol import EngineUnreachableError, Key, StartError


class DockerClusters:
    """Joins containers whose sandboxes are in `pool`; `folder` gives an attempt's files. Implements ClusterControl.

    Networks are of the `installation`.
    """

    def __init__(
        self, installation: str, pool: SandboxPool, privileges: HostPrivileges, folder: Callable[[Key], Path]
    ) -> None:
        self._installation = installation
        self._pool = pool
        self._privileges = privileges
        self._folder = folder
        self._held: dict[str, tuple[str, dict[str, str]]] = {}  # networks, since `keep` has looked at them

    def join(self, session: str, attempt: int, place: ClusterPlace) -> None:
        """Join, after starting the sandbox again where that has died."""
        key = session, attempt
        with translated(StartError, "Its cluster's network could not be made: {}".format):
            container = self._container(key) or (self._container(key) if self._pool.restart(key) else None)
        if container is None:
            raise StartError("It has no network of its own that could be its cluster's.")
        wanted = place.host, dict(place.elsewhere)
        try:
            if self._held.pop(place.network, None) != wanted:
                self._privileges.hold_cluster(place.network, *wanted, self._installation)
            self._privileges.join_cluster(container, place.network, place.names, place.index)
            self._held[place.network] = wanted
        except (OSError, FirewallError) as error:
            raise StartError(f"Its cluster's network could not be made: {error}") from error
        member_files.update_hostfile(self._folder(key), place)

    def silent(self, session: str, attempt: int, place: ClusterPlace) -> list[str]:
        others = place.others
        if place.host_network:
            ports = place.host_network.ssh_ports
            names = {(place.addresses[each - 1], ports[each - 1]): place.names[each - 1] for each in others}
            return [names[target] for target in reachability.unanswered(names)]
        with translated(EngineUnreachableError):
            container = self._container((session, attempt))
        if container:
            others = self._privileges.silent_in_cluster(container, place.network, others)
        return [place.names[index - 1] for index in others]

    def let_begin(self, session: str, attempt: int) -> None:
        member_files.let_begin(self._folder((session, attempt)))

    def keep(self, networks: Collection[str]) -> None:
        self._held.clear()
        self._privileges.keep_clusters(networks, self._installation)

    def _container(self, key: Key) -> ContainerFiles | None:
        sandbox = self._pool.containers.find(key)
        return ContainerFiles.of(sandbox) if sandbox and sandbox["State"]["Running"] else None
