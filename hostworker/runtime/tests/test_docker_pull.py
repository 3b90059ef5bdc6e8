"""Pulls through the Docker engine, from a registry on this machine that serves one small image, refuses or stalls."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from docker.errors import ImageNotFound

from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import ENGINE_URL, DockerWorld, new_session
from hostworker.runtime_protocol import ImageUnavailableError
from tests.wait import SECONDS

pytestmark = pytest.mark.docker

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


def digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def make_image(content: str) -> tuple[bytes, dict[str, bytes]]:
    """Return the manifest of an image of one file, and its blobs by digest."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("content")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content.encode()))
    layer = gzip.compress(buffer.getvalue())
    root = {"type": "layers", "diff_ids": [digest(buffer.getvalue())]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": root}).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor("application/vnd.docker.container.image.v1+json", config),
        "layers": [_descriptor("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)],
    }
    return json.dumps(manifest).encode(), {digest(config): config, digest(layer): layer}


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "size": len(blob), "digest": digest(blob)}


class Registry(ThreadingHTTPServer):
    """Serves the image at any tag of `served`, refuses `private`, answers nothing for `stalled`, knows no other."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RegistryHandler)
        self.manifest, self.blobs = make_image(new_session())
        self.released = threading.Event()

    def reference(self, repository: str) -> str:
        """Return the image name by which the engine finds this repository here."""
        return f"127.0.0.1:{self.server_port}/{repository}:1"


class RegistryHandler(BaseHTTPRequestHandler):
    """The four requests of a pull; see the OCI distribution specification."""

    server: Registry

    def do_GET(self) -> None:
        if "/stalled/" in self.path:
            self.server.released.wait(SECONDS)
        if self.path == "/v2/":
            self._answer(200, b"{}")
        elif "/private/" in self.path:
            self._answer(403, b'{"errors": [{"code": "DENIED", "message": "access is denied"}]}')
        elif self.path.startswith("/v2/served/manifests/"):
            self._answer(200, self.server.manifest, MANIFEST_TYPE)
        elif blob := self.server.blobs.get(self.path.rpartition("/")[2]):
            self._answer(200, blob, "application/octet-stream")
        else:
            self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}')

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Docker-Content-Digest", digest(body)),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def runtime() -> DockerRuntime:
    return DockerRuntime(new_session(), "here", ENGINE_URL)


def test_missing_image_is_pulled_with_progress(registry: Registry, runtime: DockerRuntime) -> None:
    reference, told = registry.reference("served"), list[str]()
    world = DockerWorld(reference)
    try:
        runtime.images.ensure(reference, told.append)
        assert told[0] == f"Pulling {reference}"
        runtime.images.ensure(reference, pytest.fail)
        assert runtime.images.find([reference, "no/such:1"]).keys() == {reference}
        assert runtime.images.find([reference])[reference].architecture == "amd64"
        told.clear()
        runtime.images.ensure(reference, told.append, always_pull=True)
        assert told[0] == f"Pulling {reference}"
    finally:
        world.client.remove_image(reference, force=True)
        world.clean_up()


@pytest.mark.parametrize(("repository", "cause"), [("unknown", "no such image or tag"), ("private", "needs a login")])
def test_what_the_registry_refuses_is_explained(
    registry: Registry, runtime: DockerRuntime, repository: str, cause: str
) -> None:
    with pytest.raises(ImageUnavailableError, match=cause):
        runtime.images.ensure(registry.reference(repository), print)


def test_a_stalled_registry_meets_the_deadline(registry: Registry) -> None:
    impatient = DockerRuntime(new_session(), "here", ENGINE_URL, pull_seconds=0.5)
    reference = registry.reference("stalled")
    with pytest.raises(ImageUnavailableError, match=r"within 0\.5 seconds"):
        impatient.images.ensure(reference, print)
    world = DockerWorld(reference)
    with pytest.raises(ImageNotFound):
        world.client.inspect_image(reference)
    world.clean_up()
