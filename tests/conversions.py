"""What tests of conversions share: a session that runs on a worker's host, and what an image holds."""

import io
import json
import tarfile
from collections.abc import Iterator

from docker.api import APIClient

from engine.containers import container_name
from sessions.models import Session
from tests.execs import output_of


def run_in(client: APIClient, session: Session, command: str, user: str = "root") -> str:
    """Run a shell command in the session's container, and return its output."""
    return output_of(client, container_name(session.pk, session.attempt), command, user)[1]


def layers_of(client: APIClient, reference: str) -> Iterator[dict[str, bytes]]:
    """Yield each layer of the image, the lowest first, as {path: content of the file}."""
    saved = io.BytesIO(b"".join(client.get_image(reference)))
    with tarfile.open(fileobj=saved) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                yield {entry.name: _content(layer, entry) for entry in layer}


def _content(layer: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = layer.extractfile(entry) if entry.isreg() else None
    return file.read() if file else b""
