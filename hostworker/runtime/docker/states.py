"""ContainerState from the Docker Engine's container list and events."""

from collections.abc import Mapping
from typing import Any, Final

from docker.api import APIClient

from engine.containers import ATTEMPT_LABEL, SESSION_LABEL
from hostworker.runtime.engine_requests import inspect
from hostworker.runtime.kernel_log import was_killed_for_memory
from hostworker.runtime_protocol import ContainerPhase, ContainerState, Key

KILLED: Final = 137  # exit code of a process ended by SIGKILL
PHASES: Final = {
    "created": ContainerPhase.CREATED,
    "running": ContainerPhase.RUNNING,
    "paused": ContainerPhase.RUNNING,
    "restarting": ContainerPhase.RUNNING,
    "removing": ContainerPhase.EXITED,
    "exited": ContainerPhase.EXITED,
    "dead": ContainerPhase.EXITED,
}


def key_of(labels: Mapping[str, str]) -> Key | None:
    """Return the container's key, or None where our labels were copied by hand."""
    session, attempt = labels.get(SESSION_LABEL, ""), labels.get(ATTEMPT_LABEL, "")
    return (session, int(attempt)) if session and attempt.isdecimal() else None


def listed_state(client: APIClient, container: dict[str, Any]) -> ContainerState | None:
    """Return the state of a container of the engine's list; None for one that is gone by now."""
    key, container_id = key_of(container["Labels"]), str(container["Id"])
    if key is None:
        return None
    phase = PHASES[container["State"]]
    if phase is not ContainerPhase.EXITED:
        return ContainerState(session=key[0], attempt=key[1], container_id=container_id, phase=phase)
    if (inspected := inspect(client, container_id)) is None:
        return None
    exit_code = int(inspected["State"]["ExitCode"])
    return _exited(key, container_id, exit_code, _ran_out_of_memory(container_id, exit_code, inspected))


def exit_from_event(client: APIClient, event: dict[str, Any], out_of_memory: bool) -> ContainerState | None:
    """Return the state that a `die` event tells; the container itself may be gone already."""
    attributes, container_id = event["Actor"]["Attributes"], str(event["Actor"]["ID"])
    key, exit_code = key_of(attributes), int(attributes["exitCode"])
    if key is None:
        return None
    if exit_code == KILLED and not out_of_memory:  # the `oom` event may lie before our stream, or come too late
        out_of_memory = _ran_out_of_memory(container_id, exit_code, inspect(client, container_id))
    return _exited(key, container_id, exit_code, out_of_memory)


def _ran_out_of_memory(container_id: str, exit_code: int, inspected: dict[str, Any] | None) -> bool:
    """Return whether the engine says so of an ended container, or the kernel, whose log outlives the cgroup."""
    if inspected and inspected["State"]["OOMKilled"]:
        return True
    return exit_code == KILLED and was_killed_for_memory(container_id)


def _exited(key: tuple[str, int], container_id: str, exit_code: int, out_of_memory: bool) -> ContainerState:
    """Return the state of an ended container; running out of memory counts only where it was the main process's end."""
    return ContainerState(
        session=key[0],
        attempt=key[1],
        container_id=container_id,
        phase=ContainerPhase.EXITED,
        exit_code=exit_code,
        out_of_memory=out_of_memory and exit_code == KILLED,
    )
