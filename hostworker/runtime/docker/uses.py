"""What the Docker Engine's running containers use."""

from collections.abc import Sequence
from typing import NamedTuple

from docker.api import APIClient

from hostworker.runtime.cgroups import use_of
from hostworker.runtime.container_config import HOST_NETWORK
from hostworker.runtime.docker.states import key_of
from hostworker.runtime.engine_requests import inspect
from hostworker.runtime_protocol import ContainerUse, Key


class _Running(NamedTuple):
    """A running container; none of ours is ever started again, so this changes as it is resized alone."""

    pid: int
    memory_bytes: int
    has_host_network: bool


class ContainerUses:
    """Reads the uses of containers on this machine; the engine's own statistics take a second each."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}  # by container id

    def read(self, client: APIClient, labels: Sequence[str]) -> dict[Key, tuple[int, ContainerUse]]:
        """Return the memory limit in bytes and the use of each running container with the labels."""
        listed = client.containers(filters={"label": list(labels), "status": ["running"]})
        ids = {str(each["Id"]): key for each in listed if (key := key_of(each["Labels"]))}
        self._running = {container_id: known for container_id, known in self._running.items() if container_id in ids}
        found = {}
        for container_id, key in ids.items():
            running = self._running.get(container_id) or self._look(client, container_id)
            if running and (use := use_of(container_id, running.pid, has_host_network=running.has_host_network)):
                found[key] = (running.memory_bytes, use)
        return found

    def forget(self, container_id: str) -> None:
        """Forget the limits of a container, as it was resized."""
        self._running.pop(container_id, None)

    def _look(self, client: APIClient, container_id: str) -> _Running | None:
        inspected = inspect(client, container_id)
        if not inspected or not inspected["State"]["Running"]:
            return None
        host = inspected["HostConfig"]
        has_host_network = host["NetworkMode"] == HOST_NETWORK
        running = _Running(int(inspected["State"]["Pid"]), int(host["Memory"]), has_host_network)
        self._running[container_id] = running
        return running
