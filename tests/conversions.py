"""What tests of conversions share: a session that runs on a worker's host, and what an image holds."""

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from docker.api import APIClient
from docker.utils.socket import frames_iter

from engine.containers import container_name
from sessions.models import Session

END: Final = b"end of the output"


def run_in(client: APIClient, session: Session, command: str, user: str = "root") -> str:
    """Run a shell command in the session's container, and return its output.

    The shell waits until that has arrived: of a process that ends at once the engine may lose the last output.
    """
    name = container_name(session.pk, session.attempt)
    script = f"{command}\necho {END.decode()}\nread -r _"
    created = client.exec_create(name, ["sh", "-c", script], user=user, stdin=True)
    output = b""
    with closing(client.exec_start(created["Id"], socket=True)) as connection:
        for _, data in frames_iter(connection, tty=False):
            output += data
            if END in output:
                break
    return output.partition(END)[0].decode()


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
