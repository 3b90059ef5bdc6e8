"""The Docker Engine as an ImageEngine: reads containers, takes in, pushes and removes images."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, cast

from docker.api import APIClient
from docker.errors import ImageNotFound, NotFound

from engine.containers import INSTALLATION_LABEL, container_name
from hostworker.conversion.base import (
    CONVERSION_LABEL,
    REFERENCE_LABEL,
    BaseImage,
    Change,
    ChangeKind,
    GoneError,
    RunningContainer,
    SnapshotError,
)
from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.engine_requests import BAD_REQUEST, NOT_FOUND, has_labels, translated
from hostworker.runtime_protocol import ContainerRuntimeError, EngineUnreachableError
from resources.amounts.units import MIB, size_text

TIMEOUT_SECONDS: Final = 900  # of silence: the engine says nothing while it unpacks a layer of many gigabytes
_PLAIN: Final = {"Accept-Encoding": "identity"}  # else the engine compresses what goes over a socket of this machine


class DockerSnapshots:
    """Images made of the containers of one installation and host. Implements ImageEngine."""

    def __init__(self, engine_url: str, owner: Mapping[str, str]) -> None:
        self._client = ProcessClient(engine_url, TIMEOUT_SECONDS)
        self._owner = owner

    def running(self, session: str, attempt: int) -> RunningContainer:
        with _translated():
            try:
                container = self._client().inspect_container(container_name(session, attempt))
            except NotFound:
                raise GoneError("The session's container is not there.") from None
        if not has_labels(container, self._owner) or not container["State"]["Running"]:
            raise GoneError("The session's container does not run.")
        mounts = frozenset(str(mount["Destination"]) for mount in container["Mounts"])
        return RunningContainer(id=str(container["Id"]), image_id=str(container["Image"]), mounts=mounts)

    def changes(self, container_id: str) -> list[Change]:
        with _translated(), _missing("The session's container is gone."):
            listed = self._client().diff(container_id) or []
        return [Change(str(each["Path"]), ChangeKind(each["Kind"])) for each in listed]

    def exists(self, container_id: str, path: str) -> bool:
        with _translated():
            client = self._client()
            response = client.head(_archive(client, container_id), params={"path": path}, timeout=client.timeout)
            return bool(response.status_code < 400)

    @contextmanager
    def read(self, container_id: str, path: str) -> Iterator[IO[bytes]]:
        with _translated():
            client = self._client()
            address = _archive(client, container_id)
            response = client.get(address, params={"path": path}, headers=_PLAIN, stream=True, timeout=client.timeout)
        with response:
            if response.status_code == NOT_FOUND:
                raise GoneError(f"{path} is gone.")
            if response.status_code >= BAD_REQUEST:
                raise SnapshotError(f"The container engine does not give {path}: status {response.status_code}.")
            yield cast(IO[bytes], _Body(response.raw))

    def base(self, image_id: str) -> BaseImage:
        with _translated(), _missing("The session's image is no longer on its host."):
            image = self._client().inspect_image(image_id)
        return BaseImage(
            config=image["Config"] or {},
            layers=tuple(image["RootFS"].get("Layers") or ()),
            architecture=str(image["Architecture"]),
            os=str(image["Os"]),
            variant=str(image.get("Variant") or ""),
        )

    def load(self, archive: Iterable[bytes]) -> None:
        with _translated():
            for event in self._client().load_image(archive):
                _raise_for(event)

    def size(self, reference: str) -> int:
        with _translated(), _missing("The image is not on its host."):
            return int(self._client().inspect_image(reference)["Size"])

    def push(self, reference: str, login: Mapping[str, str], on_progress: Callable[[str], None]) -> str:
        repository, _, tag = reference.rpartition(":")
        progress, digest = _PushProgress(), ""
        with _translated():
            events = self._client().push(repository, tag=tag, stream=True, decode=True, auth_config=dict(login))
            for event in events:
                _raise_for(event)
                digest = (event.get("aux") or {}).get("Digest", digest)
                if sentence := progress.read(event):
                    on_progress(sentence)
        if not digest:
            raise SnapshotError("The registry broke off while the image was pushed.")
        return digest

    def untag(self, reference: str) -> None:
        with _translated(), suppress(ImageNotFound):
            self._client().remove_image(reference)

    def made_here(self) -> dict[str, str]:
        """Return conversions by reference. Tags that others gave to the same image are not told."""
        labels = [f"{INSTALLATION_LABEL}={self._owner[INSTALLATION_LABEL]}", CONVERSION_LABEL]
        with _translated():
            images = self._client().images(filters={"label": labels})
        return {
            image["Labels"][REFERENCE_LABEL]: image["Labels"][CONVERSION_LABEL]
            for image in images
            if image["Labels"].get(REFERENCE_LABEL) in (image["RepoTags"] or ())
        }


class _Body(io.RawIOBase):
    """The body of an engine's answer, whose failures are ours."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with _translated():
            return bytes(self._raw.read(size))


class _PushProgress:
    """Adds up the layers of one push."""

    def __init__(self) -> None:
        self._bytes: dict[str, tuple[int, int]] = {}
        self._reported = ""

    def read(self, event: Mapping[str, Any]) -> str:
        """Take in an event; return a sentence when there is news, else ""."""
        detail = event.get("progressDetail") or {}
        if event.get("status") != "Pushing" or not detail.get("total"):
            return ""
        total = int(detail["total"])
        self._bytes[str(event.get("id"))] = (min(int(detail.get("current", 0)), total), total)
        done, size = (size_text(sum(parts) // MIB * MIB) for parts in zip(*self._bytes.values(), strict=True))
        sentence = f"Pushing to the registry: {done} of {size}"
        reported, self._reported = self._reported, sentence
        return "" if sentence == reported else sentence


@contextmanager
def _translated() -> Iterator[None]:
    try:
        with translated(ContainerRuntimeError, "The container engine refused: {}".format):
            yield
    except EngineUnreachableError:
        raise
    except ContainerRuntimeError as error:
        raise SnapshotError(str(error)) from error


@contextmanager
def _missing(words: str) -> Iterator[None]:
    try:
        yield
    except NotFound:
        raise GoneError(words) from None


def _archive(client: APIClient, container_id: str) -> str:
    return f"{client.base_url}/v{client.api_version}/containers/{container_id}/archive"


def _raise_for(event: Mapping[str, Any]) -> None:
    if "error" in event:
        raise SnapshotError(f"The container engine refused: {event['error']}")
