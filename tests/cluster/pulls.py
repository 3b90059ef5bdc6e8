"""A registry of a cluster whose connections can be cut in the middle of a layer."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import requests
from docker.errors import DockerException

from operations.machine.system_packages import program
from resources.models import Image, ImageSource
from tests.cluster.isolation import MEMORY
from tests.cluster.machines import PLATFORM, Engine
from tests.cluster.processes import Process
from tests.cluster.site import Host
from tests.factories import make_image
from tests.wait import until

PORT: Final = 5000
BEHIND: Final = 5001
LAYER_BYTES: Final = 4 << 20
BLOCK: Final = 16 << 10
CONFIG: Final = """
version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {folder}/data}}
http: {{addr: "127.0.0.1:{port}"}}
"""


class SlowRegistry:
    """A registry with one image of some MB, behind a relay that may cut each connection after a number of bytes."""

    def __init__(self, logs: Path) -> None:
        folder = MEMORY / "registry"
        folder.mkdir()
        (folder / "config.yml").write_text(CONFIG.format(folder=folder, port=BEHIND))
        words = [str(program("docker-registry")), "serve", str(folder / "config.yml")]
        Process("registry", words, {}, logs).start()
        self._budget: int | None = None
        self._listener = socket.create_server((PLATFORM, PORT))
        threading.Thread(target=self._accept, daemon=True).start()
        until(_responds)
        self.image: Image

    def publish(self, engine: Engine, base: str) -> None:
        """Push an image with a layer that does not compress, and register it."""
        client = engine.client()
        reference = f"{PLATFORM}:{PORT}/pulled:1"
        command = ["sh", "-c", f"dd if=/dev/urandom of=/tmp/layer bs={LAYER_BYTES} count=1"]
        container = client.create_container(base, command)["Id"]
        client.start(container)
        client.wait(container)
        repository, _, tag = reference.rpartition(":")
        client.commit(container, repository=repository, tag=tag)
        client.remove_container(container, force=True)
        for event in client.push(repository, tag=tag, stream=True, decode=True):
            assert "error" not in event, event
        client.remove_image(reference)
        client.close()
        self.image = make_image(reference=reference, source=ImageSource.REGISTRY)

    @contextmanager
    def failing(self, share: float) -> Iterator[None]:
        """Cut each connection once this share of the layer has been sent over it, until the block ends."""
        self._budget = int(LAYER_BYTES * share)
        try:
            yield
        finally:
            self._budget = None

    def forget(self, hosts: Sequence[Host]) -> None:
        """Remove the image from all engines, where no container needs it."""
        for host in hosts:
            client = host.engine.client()
            with suppress(DockerException, requests.RequestException):
                client.remove_image(self.image.reference)
            client.close()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", BEHIND))
            except OSError:  # it is still starting
                near.close()
                continue
            for source, sink, is_counted in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._pump, args=(source, sink, is_counted), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_counted: bool) -> None:
        sent = 0
        with suppress(OSError):
            while data := source.recv(BLOCK):
                sink.sendall(data)
                sent += len(data)
                if is_counted and self._budget is not None and sent > self._budget:
                    break
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _responds() -> bool:
    try:
        return requests.get(f"http://{PLATFORM}:{PORT}/v2/", timeout=5).ok
    except requests.RequestException:
        return False
