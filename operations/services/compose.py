"""The services of deploy/compose.yaml: containers of this machine's engine with the labels of Docker Compose."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any, Final

import docker
from docker.errors import DockerException
from docker.models.containers import Container
from requests import RequestException

from operations.services.base import ServiceAction, ServiceControlError, ServiceState, ServiceStatus

PROJECT_LABEL: Final = "com.docker.compose.project"
SERVICE_LABEL: Final = "com.docker.compose.service"
ONE_OFF_LABEL: Final = "com.docker.compose.oneoff"  # of `docker compose run`
PROJECT: Final = "gpuplatform"
SETUP: Final = "setup"  # runs once and ends
STOP_SECONDS: Final = 30
SECONDS: Final = 45
STATUSES: Final = {"running": ServiceStatus.RUNNING, "restarting": ServiceStatus.STARTING}


class ComposeManager:
    """Asks the container engine."""

    title = "Docker Compose"

    def __init__(self, engine_url: str, project: str = PROJECT) -> None:
        self._engine_url = engine_url
        self._project = project

    def is_running(self) -> bool:
        """Return whether the engine has containers of the project."""
        try:
            return bool(self.states())
        except ServiceControlError:
            return False

    def states(self) -> list[ServiceState]:
        """Return all services that have a container."""
        with self._containers() as found:
            return sorted((_state(container) for container in found), key=lambda state: state.name)

    def act(self, action: ServiceAction, name: str) -> None:
        """Start, stop or restart the container of a service."""
        with self._container(name) as container:
            if action == ServiceAction.START:
                container.start()
            elif action == ServiceAction.STOP:
                container.stop(timeout=STOP_SECONDS)
            else:
                container.restart(timeout=STOP_SECONDS)

    def log(self, name: str, lines: int) -> list[str]:
        """Return the newest lines of its output."""
        with self._container(name) as container:
            return container.logs(tail=lines).decode(errors="replace").splitlines()

    @contextmanager
    def _containers(self) -> Iterator[list[Container]]:
        labels = [f"{PROJECT_LABEL}={self._project}", f"{ONE_OFF_LABEL}=False"]
        try:
            with closing(docker.DockerClient(base_url=self._engine_url, timeout=SECONDS)) as engine:
                found = engine.containers.list(all=True, filters={"label": labels})
                yield [each for each in found if each.labels.get(SERVICE_LABEL) not in (None, SETUP)]
        except (DockerException, RequestException, OSError) as error:
            raise ServiceControlError(str(error)) from error

    @contextmanager
    def _container(self, name: str) -> Iterator[Container]:
        with self._containers() as found:
            container = next((each for each in found if each.labels[SERVICE_LABEL] == name), None)
            if container is None:
                raise ServiceControlError(f"there is no service {name!r}")
            yield container


def _state(container: Container) -> ServiceState:
    state: dict[str, Any] = container.attrs["State"]
    has_failed = state["Status"] not in STATUSES and state["ExitCode"] not in (0, 143, 137)  # by SIGTERM, SIGKILL
    moment = state["StartedAt"] if state["Status"] in STATUSES else state["FinishedAt"]
    return ServiceState(
        name=container.labels[SERVICE_LABEL],
        status=ServiceStatus.FAILED if has_failed else STATUSES.get(state["Status"], ServiceStatus.STOPPED),
        pid=state["Pid"] or None,
        since=None if moment.startswith("0001") else datetime.fromisoformat(moment),
        restarts=container.attrs["RestartCount"],
    )
