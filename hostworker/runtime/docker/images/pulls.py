"""Images of the Docker Engine: which are here, and pulls of others."""

from collections.abc import Collection, Iterator

from docker.api import APIClient
from docker.errors import ImageNotFound, NotFound

from hostworker.runtime.pull import PullLine
from hostworker.runtime_protocol import HeldImage
from resources.registries.login import RegistryLogin


class HeldImages:
    """Answers which images the engine has; what it has told of an image is kept, since an image never changes."""

    def __init__(self) -> None:
        self._architectures: dict[str, str] = {}  # by image id

    def find(self, client: APIClient, references: Collection[str]) -> dict[str, HeldImage]:
        """Return those of `references` that the engine has."""
        found: dict[str, HeldImage] = {}
        architectures: dict[str, str] = {}
        for listed in client.images():
            names = {*(listed.get("RepoTags") or ()), *(listed.get("RepoDigests") or ())} & set(references)
            if not names:
                continue
            architecture = architectures[listed["Id"]] = self._architecture(client, listed["Id"])
            held = HeldImage(size_bytes=int(listed["Size"]), architecture=architecture)
            found.update(dict.fromkeys(names, held))
        self._architectures = architectures
        return found

    def _architecture(self, client: APIClient, image_id: str) -> str:
        if image_id in self._architectures:
            return self._architectures[image_id]
        try:
            return str(client.inspect_image(image_id).get("Architecture") or "")
        except ImageNotFound:  # removed a moment ago
            return ""


def is_here(client: APIClient, reference: str) -> bool:
    """Return whether the engine has the image."""
    try:
        client.inspect_image(reference)
    except NotFound:
        return False
    return True


def pull_lines(client: APIClient, reference: str, login: RegistryLogin | None) -> Iterator[PullLine]:
    """Pull with `login`, else with what `docker login` has stored for the worker's own user."""
    auth_config = login.auth_config() if login else None
    lines: Iterator[PullLine] = client.pull(reference, stream=True, decode=True, auth_config=auth_config)
    yield from lines
