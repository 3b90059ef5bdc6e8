"""The Docker Engine as a Runtime. The SDK is used in this package alone, and its exceptions stop here.

Create and start determine a session's launch time, so they make few other requests: the id that `create` returned
is cached for `start`, as is the address. A container joins a sandbox, which outlives it and so keeps its address. A
sandbox that is ready costs two quick requests, to rename it and to inspect the container, and saves making a network.
"""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from docker.api import APIClient
from docker.errors import APIError, ImageNotFound

from engine.containers import HOST_LABEL, INSTALLATION_LABEL, container_name
from hostworker.cluster_protocol import ClusterControl
from hostworker.conversion.base import ImageEngine
from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.shares import needs_hook
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime import infiniband
from hostworker.runtime.container_config import HOST_NETWORK, NETWORK, container_config, joined_network
from hostworker.runtime.docker.client import BridgeNetwork, ProcessClient
from hostworker.runtime.docker.clusters import DockerClusters
from hostworker.runtime.docker.disks import DockerDisks
from hostworker.runtime.docker.events import exits_since
from hostworker.runtime.docker.exec import execute
from hostworker.runtime.docker.folders import DockerFolders
from hostworker.runtime.docker.gpus import DockerGpus
from hostworker.runtime.docker.images.pulls import DockerImages
from hostworker.runtime.docker.images.saved import DockerSavedContainers
from hostworker.runtime.docker.images.snapshots import DockerSnapshots
from hostworker.runtime.docker.outputs import DockerOutputs
from hostworker.runtime.docker.resize import DockerResizer
from hostworker.runtime.docker.started import bound_terminals, give_name
from hostworker.runtime.docker.states import PHASES, listed_state
from hostworker.runtime.docker.uses import ContainerUses
from hostworker.runtime.engine_requests import (
    CONFLICT,
    has_labels,
    ignore_missing,
    inspect,
    label_filter,
    retry_on_conflict,
    translated,
)
from hostworker.runtime.resource_limits import can_lift_limits
from hostworker.runtime.sandboxes.containers import address_in, name_mounts
from hostworker.runtime.sandboxes.pool import SandboxPool
from hostworker.runtime.seccomp import profile_for
from hostworker.runtime.user_namespaces import folders_problem
from hostworker.runtime_protocol import (
    ContainerPhase,
    ContainerSpec,
    ContainerState,
    ContainerUse,
    EnforcementError,
    EnforcementSetup,
    EngineUnreachableError,
    ExecResult,
    ExecutionError,
    HasEndedError,
    HostDisks,
    HostImages,
    HostOutputs,
    ImageUnavailableError,
    Key,
    MountControl,
    RemovalError,
    Resizer,
    SavedContainers,
    StartError,
)

Labels = dict[str, str]


class _Created(NamedTuple):
    """A container that waits to be started."""

    id: str
    has_sandbox: bool
    address: str | None = None  # of its sandbox, where that is known


class DockerRuntime:
    """The containers of one installation and host name on the Docker Engine at `engine_url`.

    The engine is first spoken to when the first method is called. Without an `enforcer` no GPU can be divided.
    `keep_warm` keeps `sandboxes` networks ready for the next starts. Implements Runtime.
    """

    def __init__(
        self,
        installation: str,
        host: str,
        engine_url: str = "unix:///var/run/docker.sock",
        network: str = NETWORK,
        pull_seconds: float = 30 * 60,
        enforcer: Enforcer | None = None,
        sandboxes: int = 0,
    ) -> None:
        self._owner: Labels = {INSTALLATION_LABEL: installation, HOST_LABEL: host}
        self._engine_url = engine_url
        self._enforcer = enforcer
        self._privileges: HostPrivileges = enforcer.privileges if enforcer else HostPrivileges()
        self._client = ProcessClient(engine_url)
        self._network = BridgeNetwork(self._client, network)
        self._pool = SandboxPool(self._client, self._owner, self._network.ensure_anew, sandboxes, self._privileges)
        self.images: HostImages = DockerImages(self._client, pull_seconds)
        self.image_engine: ImageEngine | None = DockerSnapshots(engine_url, self._owner)
        self.mount_control: MountControl = DockerFolders(self._client, self._owner, self._privileges)
        self.saved_containers: SavedContainers = DockerSavedContainers(engine_url, self._owner)
        beside = enforcer.written_bytes if enforcer else dict
        self._disks = DockerDisks(self._client, self._owner, engine_url, self._privileges, beside)
        self.disks: HostDisks = self._disks
        self.clusters: ClusterControl | None = (
            DockerClusters(installation, self._pool, self._privileges, enforcer.folders.path) if enforcer else None
        )
        self._info = functools.cache(lambda: dict(self._client().info()))
        self._seccomp = functools.cache(lambda: profile_for(self._info()))
        self._folders_problem = functools.cache(lambda: folders_problem(self._info(), self._pool.containers))
        self.outputs: HostOutputs = DockerOutputs(self._client, self._owner, is_here=engine_url.startswith("unix://"))
        self._created: dict[Key, _Created] = {}  # until it is started
        self._gpus = DockerGpus(self._client, enforcer.accelerators if enforcer else None)
        self._uses = ContainerUses()
        self.resizer: Resizer = DockerResizer(self._client, self._owner, enforcer, self._uses)
        self._addresses: dict[Key, str] = {}  # known from the start, until `address` is called

    def create(self, spec: ContainerSpec) -> str:
        name, key = container_name(spec.session, spec.attempt), (spec.session, spec.attempt)
        setup = self._prepare_enforcement(spec)
        with (
            translated(StartError, "The container could not be created: {}".format),
            self._pool.pause_background_work(),
        ):
            client = self._client()
            self._network.ensure()
            network = HOST_NETWORK if spec.has_host_network else self._network.name
            sandbox = None if spec.has_host_network else self._pool.take(key, spec.hostname)
            setup = replace(setup, mounts=(*setup.mounts, *name_mounts(self._info()["DockerRootDir"], sandbox)))
            config = container_config(
                spec,
                self._owner,
                joined_network(sandbox.id) if sandbox else network,
                setup,
                self._gpus.access(spec),
                has_quotas=self._disks.has_quotas(),
                seccomp=self._seccomp(),
                lifts_limits=can_lift_limits(self._info(), self._pool.containers),
                device_nodes=infiniband.nodes() if spec.has_host_network else (),
            )
            for _ in retry_on_conflict():
                try:
                    created = self._disks.create(config, name)
                except ImageNotFound:
                    raise ImageUnavailableError(f"Image {spec.image} is not on the host.") from None
                except APIError as error:
                    if error.status_code != CONFLICT:
                        raise
                else:
                    self._created[key] = _Created(str(created["Id"]), bool(sandbox), sandbox and sandbox.address)
                    return str(created["Id"])
                # The name is taken by our container, by a foreign one, or by one that is being created or removed.
                if (existing := inspect(client, name)) is None:
                    continue
                if not has_labels(existing, self._owner):
                    raise StartError(f"The name {name} is taken by a container that is not the platform's.")
                if not self._pool.is_discarded(existing["Id"]) and not _is_stranded(client, existing):
                    return str(existing["Id"])
                client.remove_container(existing["Id"], v=True)
        raise StartError(f"The name {name} stays reserved although no container has it.")

    def start(self, session: str, attempt: int, announce: Callable[[str], None] = lambda address: None) -> None:
        """Start the created container. One that has ended is not started again.

        In an image without /bin/sh the container starts and ends at once with code 127; its log says why. Without a
        sandbox the address is known, and announced, a moment after the start.
        """
        key = (session, attempt)
        with (
            translated(StartError, "The container could not be started: {}".format),
            self._pool.pause_background_work(),
        ):
            client = self._client()
            created = self._created.pop(key, None)
            container_id, has_sandbox, address = created or self._startable(client, key)
            if has_sandbox:
                address = self._start_joined(client, container_id, key, address, announce)
            else:
                self._network.start(container_id)
            container = client.inspect_container(container_id)
        bound_terminals(self._privileges, container)
        if has_sandbox:
            give_name(self._privileges, container)
        elif address := address_in(container):
            announce(address)
        if address:
            self._addresses[key] = address
        if self._enforcer and self._enforcer.applies_to(key):
            self._enforcer.verify(key, int(container["State"]["Pid"]))

    def address(self, session: str, attempt: int) -> str | None:
        """Return what the container's own network, or its sandbox's, gave it; no request right after the start."""
        key = (session, attempt)
        if known := self._addresses.pop(key, None):
            return known
        with translated(EngineUnreachableError):
            container = self._find(self._client(), session, attempt)
            if container is None or not container["State"]["Running"]:
                return None
            return self._pool.address(key) if _has_sandbox(container) else address_in(container)

    def stop(self, session: str, attempt: int, grace_seconds: int) -> None:
        self._addresses.pop((session, attempt), None)
        self.outputs.release(session, attempt)
        with translated(EngineUnreachableError), ignore_missing():
            client = self._client()
            if (container := self._find(client, session, attempt)) and container["State"]["Running"]:
                client.stop(container["Id"], timeout=grace_seconds)

    def remove(self, session: str, attempt: int) -> None:
        """Remove the container with its writable layer and anonymous volumes, later if it has ended."""
        self._created.pop((session, attempt), None)
        self._addresses.pop((session, attempt), None)
        self.outputs.release(session, attempt)
        with translated(RemovalError), ignore_missing():
            client = self._client()
            container = self._find(client, session, attempt)
            if container and container["State"]["Running"]:
                client.remove_container(container["Id"], v=True, force=True)
            elif container:
                self._pool.discard_container(container["Id"])
            self._pool.discard((session, attempt))
        if self._enforcer:
            self._enforcer.discard((session, attempt))

    def containers(self) -> list[ContainerState]:
        """Return the state of every container of this installation and host; one request, and one per ended one.

        The engine's list lags some 50 ms behind an exit that `exits` has told already.
        """
        with translated(EngineUnreachableError):
            client = self._client()
            listed = client.containers(all=True, filters={"label": label_filter(self._owner)})
            left = (container for container in listed if not self._pool.is_discarded(container["Id"]))
            states = (listed_state(client, container) for container in left)
            return [state for state in states if state is not None]

    def leftover_attempts(self) -> set[Key]:
        with translated(EngineUnreachableError):
            sandboxes = self._pool.keys()
        return sandboxes | (self._enforcer.keys() if self._enforcer else set())

    def keep_warm(self, stopped: threading.Event) -> None:
        self._pool.keep(stopped)

    def logs(self, session: str, attempt: int, tail: int) -> str:
        """Return the last lines of the log, undecodable bytes replaced."""
        with translated(EngineUnreachableError), ignore_missing():
            client = self._client()
            if container := self._find(client, session, attempt):
                return client.logs(container["Id"], tail=tail).decode(errors="replace")
        return ""

    def execute(self, session: str, attempt: int, command: Sequence[str], environment: Mapping[str, str]) -> ExecResult:
        with translated(ExecutionError, "The container engine refused: {}".format):
            client = self._client()
            container = self._find(client, session, attempt)
            if not (container and container["State"]["Running"]):
                raise ExecutionError("The session's container is not running.")
            container_id = str(container["Id"])
        return execute(self._engine_url, container_id, command, environment)

    def folders_problem(self) -> str:
        with translated(EngineUnreachableError):
            return self._folders_problem()

    def uses(self) -> dict[Key, ContainerUse]:
        """Return what /proc and /sys say; one request, and one for each container that is new."""
        with translated(EngineUnreachableError):
            found = self._uses.read(self._client(), label_filter(self._owner))
        if self._enforcer:
            for key, (memory_bytes, use) in found.items():
                self._enforcer.figures.show_memory(key, memory_bytes, use)
        return {key: use for key, (_, use) in found.items()}

    def exits(
        self, stopped: threading.Event, on_memory_kill: Callable[[str, int], None] = lambda session, attempt: None
    ) -> Iterator[ContainerState]:
        """Yield exits from the moment of this call, even before the first is asked for."""
        return exits_since(time.time_ns(), self._client, label_filter(self._owner), stopped, on_memory_kill)

    def _prepare_enforcement(self, spec: ContainerSpec) -> EnforcementSetup:
        if self._enforcer:
            return self._enforcer.prepare(spec, self._gpus.image_environment(spec))
        if needs_hook(spec.gpus):
            raise EnforcementError("Its host cannot divide a GPU: no enforcement is set up.")
        return EnforcementSetup()

    def _start_joined(
        self, client: APIClient, container_id: str, key: Key, address: str | None, announce: Callable[[str], None]
    ) -> str | None:
        """Start the container, and its sandbox again where that has died; return the announced address."""
        if address:
            announce(address)
        try:
            client.start(container_id)
        except APIError:
            if not self._pool.restart(key):
                raise
            if address := self._pool.address(key):
                announce(address)
            client.start(container_id)
        return address

    def _find(self, client: APIClient, session: str, attempt: int) -> dict[str, Any] | None:
        container = inspect(client, container_name(session, attempt))
        if container is None or not has_labels(container, self._owner) or self._pool.is_discarded(container["Id"]):
            return None
        return container

    def _startable(self, client: APIClient, key: Key) -> "_Created":
        """Return a container that another has created."""
        container = self._find(client, *key)
        if container is None:
            raise StartError("The container is not there.")
        if PHASES[container["State"]["Status"]] is ContainerPhase.EXITED:
            raise HasEndedError("The container has already ended.")
        has_sandbox = _has_sandbox(container)
        return _Created(str(container["Id"]), has_sandbox, self._pool.address(key) if has_sandbox else None)


def _has_sandbox(container: dict[str, Any]) -> bool:
    return str(container["HostConfig"]["NetworkMode"]).startswith(joined_network(""))


def _is_stranded(client: APIClient, container: dict[str, Any]) -> bool:
    """Return whether the container was never started and cannot be, because its sandbox is gone."""
    sandbox = container["HostConfig"]["NetworkMode"].removeprefix(joined_network(""))
    return container["State"]["Status"] == "created" and _has_sandbox(container) and inspect(client, sandbox) is None
