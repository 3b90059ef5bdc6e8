"""Helpers for requests to the Docker Engine: translated exceptions, and retries on conflicts with other workers."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from docker.api import APIClient
from docker.errors import APIError, DockerException, NotFound, StreamParseError
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from hostworker.runtime_protocol import ContainerRuntimeError, EngineUnreachableError

CONFLICT_TIMEOUT_SECONDS: Final = 15.0  # until what another worker creates is visible
RETRY_PAUSE_SECONDS: Final = 0.02
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
CONFLICT: Final = 409
NVIDIA: Final = "nvidia"  # its hooks run on the host, and fail in words like those of images
IMAGE_FAULTS: Final = (  # fragments of what the engine and runc say of images that cannot run
    *('exec: "', "exec format error", "executable file not found"),
    *("unable to find user", "unable to find group", "no matching entries in passwd file"),
    "are you trying to mount a directory onto a file",
)
RUNTIME: Final = "oci runtime"  # in what the engine says of a program such as runc, or NVIDIA's in front of it
NO_ANSWER: Final = "unable to retrieve oci runtime error"  # it is missing, or ended before it could say why


@contextmanager
def translated(
    refusal: type[ContainerRuntimeError], sentence: Callable[[str], str] = "The container engine failed: {}".format
) -> Iterator[None]:
    """Turn the SDK's exceptions into ours: `refusal` where the engine says no, else EngineUnreachableError."""
    try:
        yield
    except APIError as error:
        message = explanation(error)
        is_refused = error.status_code == BAD_REQUEST or is_image_fault(message)
        is_others_fault = is_refused and not is_runtime_fault(message)
        raise refusal(sentence(message), is_host_fault=refusal.is_host_fault and not is_others_fault) from error
    except (DockerException, RequestException, HTTPError, StreamParseError, OSError) as error:
        raise EngineUnreachableError(f"The container engine does not answer: {error}") from error


@contextmanager
def ignore_missing() -> Iterator[None]:
    """Ignore errors because the container is gone or is being removed by another worker."""
    try:
        yield
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != CONFLICT:
            raise


def retry_on_conflict() -> Iterator[None]:
    """Yield repeatedly, with pauses, for CONFLICT_TIMEOUT_SECONDS, until another worker's change becomes visible."""
    deadline = time.monotonic() + CONFLICT_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        yield
        time.sleep(RETRY_PAUSE_SECONDS)


def is_image_fault(message: str) -> bool:
    """Return whether the engine refused a container because of its image, so that no other host would start it."""
    lowered = message.lower()
    return NVIDIA not in lowered and any(fragment in lowered for fragment in IMAGE_FAULTS)


def is_runtime_fault(message: str) -> bool:
    """Return whether the host's container runtime is broken.

    The engine calls that a bad request: it takes "no such file or directory" and "permission denied" for the image's.
    """
    lowered = message.lower()
    return RUNTIME in lowered and (NO_ANSWER in lowered or NVIDIA in lowered)


def explanation(error: APIError) -> str:
    """Return the engine's error message."""
    return str(error.explanation or error)


def inspect(client: APIClient, name: str) -> dict[str, Any] | None:
    """Return the engine's view of the container, or None when it is not there."""
    try:
        container: dict[str, Any] = client.inspect_container(name)
    except NotFound:
        return None
    return container


def has_labels(container: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether the inspected container has all of the labels."""
    return labels.items() <= (container["Config"]["Labels"] or {}).items()


def label_filter(labels: Mapping[str, str]) -> list[str]:
    """Return the engine's filter for containers that have all of the labels."""
    return [f"{name}={value}" for name, value in labels.items()]
