"""Containers that a test starts for itself and removes again."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from docker.api import APIClient
from docker.errors import APIError

ENGINE_URL = "unix:///var/run/docker.sock"
IDLE = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]
OWN = ("docker-init", "trap 'exit 0'", "sleep 3600")  # processes of every idling container


def remove_containers(*labels: str) -> None:
    """Remove the containers that have all these labels, those too that another is removing at this moment."""
    client = APIClient(ENGINE_URL, version="auto")
    for container in client.containers(all=True, filters={"label": list(labels)}):
        try:
            client.remove_container(container["Id"], force=True, v=True)
        except APIError as error:
            if error.status_code not in (404, 409):
                raise
    client.close()


@dataclass(frozen=True)
class Container:
    """A running container of a test."""

    id: str
    client: APIClient

    def run(self, command: str) -> str:
        """Return the output of a shell command in the container."""
        exec_id = self.client.exec_create(self.id, ["sh", "-c", command])["Id"]
        return bytes(self.client.exec_start(exec_id)).decode()

    def processes(self) -> list[str]:
        """Return the command lines of its processes, init and the idling main process apart."""
        listing = self.client.top(self.id, ps_args="-eo pid,args")["Processes"]
        lines = [arguments for _, arguments in listing]
        return [line for line in lines if not any(own in line for own in OWN)]

    def stop(self) -> None:
        """Kill it."""
        self.client.kill(self.id)
        self.client.wait(self.id)


@contextmanager
def running_container(
    image: str, *, name: str = "", labels: Mapping[str, str] | None = None, engine_url: str = ENGINE_URL
) -> Iterator[Container]:
    """Start a container of `image` that idles, without network; remove it at the end."""
    client = APIClient(engine_url, version="auto")
    config = client.create_host_config(init=True, network_mode="none")
    name = name or f"gptest-{secrets.token_hex(6)}"
    created = client.create_container(image, IDLE, name=name, labels=dict(labels or {}), host_config=config)
    container_id = str(created["Id"])
    try:
        client.start(container_id)
        yield Container(container_id, client)
    finally:
        client.remove_container(container_id, force=True, v=True)
        client.close()
