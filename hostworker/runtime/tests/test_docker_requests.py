"""Whose fault a refusal of the engine is: the host's, so that another one is tried, or the request's."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import ClassVar, Final

import pytest
import requests
from docker.errors import APIError

from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.engine_requests import translated
from hostworker.runtime_protocol import RemovalError, StartError

CREATE: Final = "failed to create shim task: OCI runtime create failed: "
# As Docker Engine 20.10 says it where the runtime ends at once, and where it is missing; with the status 400 each time.
NO_LOG: Final = (
    f"{CREATE}unable to retrieve OCI runtime error (open /run/moby/e3/log.json: no such file or directory): "
)


@pytest.mark.parametrize(
    ("status", "text", "is_host_fault"),
    [
        (400, f"{NO_LOG}/usr/bin/runtime did not terminate successfully: exit status 1: unknown", True),
        (400, f"{NO_LOG}fork/exec /usr/bin/nvidia-container-runtime: no such file or directory: unknown", True),
        (400, f"{CREATE}error running hook #0: nvidia-container-cli: mount error: permission denied: unknown", True),
        (500, f"{CREATE}error running hook #0: nvidia-container-cli: driver not loaded: unknown", True),
        (400, f'{CREATE}exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown', False),
        (400, "Minimum memory limit allowed is 6MB", False),
    ],
)
def test_a_broken_container_runtime_is_the_hosts_fault(status: int, text: str, is_host_fault: bool) -> None:
    response = requests.Response()
    response.status_code = status
    with pytest.raises(StartError) as refused, translated(StartError):
        raise APIError("refused", response, text)
    assert refused.value.is_host_fault is is_host_fault


class Engine(BaseHTTPRequestHandler):
    """A Docker Engine with one running container, which it does not remove."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[list[object]] = []

    def setup(self) -> None:
        super().setup()
        self.connections.append(self)

    def do_GET(self) -> None:
        container: dict[str, object] = {
            "Id": "c0ffee",
            "Config": {"Labels": {INSTALLATION_LABEL: "lab", HOST_LABEL: "here"}},
            "State": {"Running": True},
        }
        self._answer(200, {"ApiVersion": "1.41"} if self.path == "/version" else container)

    def do_DELETE(self) -> None:
        self._answer(500, {"message": "driver failed to remove root filesystem: device or resource busy"})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: object) -> None:
        """Say nothing: a Unix socket has no address to name."""


@pytest.fixture
def engine_url(tmp_path: Path) -> Iterator[str]:
    """Where such an engine is reached."""
    Engine.connections.clear()
    with ThreadingUnixStreamServer(str(tmp_path / "engine"), Engine) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"unix://{tmp_path}/engine"
        server.shutdown()


def test_an_engine_that_removes_no_container_answers_all_the_same(engine_url: str) -> None:
    runtime = DockerRuntime("lab", "here", engine_url)
    with pytest.raises(RemovalError, match="device or resource busy"):
        runtime.remove("session", 1)
    runtime._client().close()


def test_requests_about_many_containers_share_a_connection(engine_url: str) -> None:
    client = ProcessClient(engine_url)()
    first = len(Engine.connections)
    for number in range(5):
        client.inspect_container(f"container-{number}")
    client.close()
    assert len(Engine.connections) == first + 1
