"""Images of the Docker Engine: which are here, and pulls of others."""

from collections.abc import Callable, Collection, Iterator

from docker.api import APIClient
from docker.errors import ImageNotFound, NotFound

from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.engine_requests import translated
from hostworker.runtime.pull import PullLine, PullText, explain_failure, follow
from hostworker.runtime_protocol import EngineUnreachableError, FindLogin, HeldImage, ImageUnavailableError
from resources.images import replaced
from resources.registries.login import RegistryLogin


class DockerImages:
    """What the engine says of an image is cached, since an image never changes. Implements HostImages."""

    def __init__(self, client: ProcessClient, pull_seconds: float) -> None:
        self._client = client
        self._pull_seconds = pull_seconds
        self._architectures: dict[str, str] = {}  # by image id

    def ensure(
        self,
        reference: str,
        on_progress: Callable[[str], None],
        find_login: FindLogin = lambda: None,
        *,
        always_pull: bool = False,
    ) -> None:
        with translated(ImageUnavailableError, lambda message: explain_failure(reference, message)):
            client = self._client()
            if not always_pull and is_here(client, reference):
                return
            on_progress(PullText(f"Pulling {reference}"))
            login = find_login()
            follow(reference, lambda: pull_lines(client, reference, login), on_progress, self._pull_seconds)
            # A stream that was cut ends like one that is complete; only the image itself tells.
            client.inspect_image(reference)

    def has(self, reference: str) -> bool:
        """Return whether the image is on this host; one request."""
        with translated(EngineUnreachableError):
            return is_here(self._client(), reference)

    def find(self, references: Collection[str]) -> dict[str, HeldImage]:
        """Return the images of the engine's list; one request, and one for each that was not there before."""
        with translated(EngineUnreachableError):
            return self._find(self._client(), references)

    def remove_replaced(self) -> None:
        with translated(EngineUnreachableError):
            replaced.remove_unused(self._client())

    def _find(self, client: APIClient, references: Collection[str]) -> dict[str, HeldImage]:
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
