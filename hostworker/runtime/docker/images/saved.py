"""Stopped containers saved as images of the Docker Engine, by commit; see ADR 41."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from docker.api import APIClient
from docker.errors import APIError, ImageNotFound, NotFound

from engine.containers import (
    ATTEMPT_LABEL,
    ENVIRONMENT_LABEL,
    SAVED_LABEL,
    SAVED_REPOSITORY,
    SESSION_LABEL,
    container_name,
    saved_reference,
)
from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.engine_requests import CONFLICT, has_labels, label_filter, translated
from hostworker.runtime_protocol import EngineUnreachableError, Key, SaveError

TIMEOUT_SECONDS: Final = 900  # of silence: the engine says nothing while it writes a layer of many gigabytes


class DockerSavedContainers:
    """The saved containers of one installation and host; an image has the labels of its container, and SAVED_LABEL.

    Implements SavedContainers.
    """

    def __init__(self, engine_url: str, owner: Mapping[str, str]) -> None:
        self._client = ProcessClient(engine_url, TIMEOUT_SECONDS)
        self._owner = owner

    def save(self, session: str, attempt: int) -> int:
        with translated(SaveError, "The container engine could not save the container: {}".format):
            client = self._client()
            if (image := _image(client, saved_reference(session, attempt))) is not None:
                return _written_bytes(image)
            try:
                container = client.inspect_container(container_name(session, attempt))
                base = client.inspect_image(container["Image"])
            except NotFound:
                raise SaveError("The session's container is not on its host any more.") from None
            if not has_labels(container, self._owner) or container["State"]["Running"]:
                raise SaveError("The session's container still runs, or is not the platform's.")
            return self._commit(client, saved_reference(session, attempt), container, base)

    def reference(self, session: str, attempt: int) -> str | None:
        name = saved_reference(session, attempt)
        with translated(EngineUnreachableError):
            return name if _image(self._client(), name) is not None else None

    def keys(self) -> set[Key]:
        labels = [*label_filter(self._owner), SAVED_LABEL]
        with translated(EngineUnreachableError):
            images = self._client().images(SAVED_REPOSITORY, filters={"label": labels})
        found = {(each["Labels"][SESSION_LABEL], int(each["Labels"][ATTEMPT_LABEL])): each for each in images}
        return {key for key, image in found.items() if saved_reference(*key) in (image["RepoTags"] or ())}

    def discard(self, session: str, attempt: int) -> None:
        with translated(EngineUnreachableError), suppress(ImageNotFound):
            try:
                self._client().remove_image(saved_reference(session, attempt))
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise

    def _commit(self, client: APIClient, reference: str, container: Mapping[str, Any], base: Mapping[str, Any]) -> int:
        """Save the container as an image with the variables of the image below; return the bytes written in all."""
        (listed,) = client.containers(all=True, size=True, filters={"id": container["Id"]})
        written = int(listed.get("SizeRw") or 0) + _written_bytes(base)
        environment = environment_of(base)
        labels = {SAVED_LABEL: str(written), ENVIRONMENT_LABEL: json.dumps(environment)}
        repository, _, tag = reference.rpartition(":")
        configuration = {"Env": environment, "Labels": labels}  # the engine adds the container's own where these lack
        client.commit(container["Id"], repository, tag, pause=False, conf=configuration)
        return written


def environment_of(image: Mapping[str, Any]) -> list[str]:
    """Return the variables of an image, each as NAME=value; of a saved container, those of the image that it ran."""
    configuration = image["Config"] or {}
    stored = (configuration.get("Labels") or {}).get(ENVIRONMENT_LABEL)
    return list(json.loads(stored) if stored else configuration.get("Env") or [])


def _image(client: APIClient, reference: str) -> dict[str, Any] | None:
    try:
        image: dict[str, Any] = client.inspect_image(reference)
    except ImageNotFound:
        return None
    return image


def _written_bytes(image: Mapping[str, Any]) -> int:
    """Return what saved containers below this image have written; 0 where there are none."""
    return int(((image["Config"] or {}).get("Labels") or {}).get(SAVED_LABEL, 0))
