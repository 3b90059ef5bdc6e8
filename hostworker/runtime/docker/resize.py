"""Resizing running containers of the Docker Engine: its update of CPU and memory, and the files of the enforcer."""

from collections.abc import Mapping
from typing import Any, Final

from docker.api import APIClient
from docker.errors import create_api_error_from_http_exception
from requests.exceptions import HTTPError

from engine.containers import container_name
from hostworker.enforcement.enforcer import Enforcer
from hostworker.runtime.cgroups import use_of
from hostworker.runtime.container_config import cpu_shares
from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.docker.uses import ContainerUses
from hostworker.runtime.engine_requests import has_labels, inspect, translated
from hostworker.runtime_protocol import ContainerSpec, EngineUnreachableError, ResizeError
from resources.amounts.units import MIB, size_text

MEMORY_MARGIN_BYTES: Final = 16 * MIB  # beside what is in use: at the very limit, the kernel would kill


class DockerResizer:
    """Resizes the containers of one installation and host. Implements Resizer."""

    def __init__(
        self, client: ProcessClient, owner: Mapping[str, str], enforcer: Enforcer | None, uses: ContainerUses
    ) -> None:
        self._client = client
        self._owner = owner
        self._enforcer = enforcer
        self._uses = uses

    def resize(self, spec: ContainerSpec, before: ContainerSpec) -> None:
        with translated(ResizeError, "The container engine refused it: {}".format):
            client = self._client()
            container = inspect(client, container_name(spec.session, spec.attempt))
            if container is None or not has_labels(container, self._owner) or not container["State"]["Running"]:
                raise ResizeError("Its container does not run.")
            try:
                _check_memory(container, spec)
                self._hold(client, container, spec)
                if self._enforcer:
                    self._enforcer.resize(spec, before, int(container["State"]["Pid"]))
                    self._enforcer.show(spec)
            except Exception:
                self._restore(client, container, before)
                raise
            finally:
                self._uses.forget(container["Id"])

    def _restore(self, client: APIClient, container: Mapping[str, Any], before: ContainerSpec) -> None:
        """Hold the container to what it had. Raises EngineUnreachableError, since the resize is then not refused."""
        with translated(EngineUnreachableError):
            self._hold(client, container, before)
        if self._enforcer:
            self._enforcer.show(before)

    def _hold(self, client: APIClient, container: Mapping[str, Any], spec: ContainerSpec) -> None:
        """Have the engine hold the container to the cores and memory of `spec`. Raises APIError."""
        cpus = self._enforcer.figures.repin(spec) if self._enforcer else ""
        amounts: dict[str, object] = {
            "NanoCpus": spec.cpu * 10**9,
            "CpuShares": cpu_shares(spec),
            "Memory": spec.memory_bytes,
            "MemorySwap": spec.memory_bytes,
        }
        if cpus and container["HostConfig"]["CpusetCpus"]:
            amounts["CpusetCpus"] = cpus
        _update(client, container["Id"], amounts)


def _check_memory(container: Mapping[str, Any], spec: ContainerSpec) -> None:
    """Raise ResizeError where the container uses more memory than it is to have, or that is not known."""
    if spec.memory_bytes >= container["HostConfig"]["Memory"]:
        return
    use = use_of(container["Id"], int(container["State"]["Pid"]))
    if use is None:
        raise ResizeError("How much memory it uses cannot be measured.")
    if use.memory_bytes + MEMORY_MARGIN_BYTES > spec.memory_bytes:
        used, asked = size_text(use.memory_bytes), size_text(spec.memory_bytes)
        raise ResizeError(f"It uses {used} of memory, too much for {asked}.")


def _update(client: APIClient, container_id: str, amounts: Mapping[str, object]) -> None:
    """Send the engine's update request, of which the SDK knows no NanoCpus. Raises APIError."""
    address = f"{client.base_url}/v{client.api_version}/containers/{container_id}/update"
    response = client.post(address, json=dict(amounts), timeout=client.timeout)
    try:
        response.raise_for_status()
    except HTTPError as error:
        create_api_error_from_http_exception(error)
