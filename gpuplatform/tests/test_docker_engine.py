"""How a Docker Engine is found, started and explained."""

import os
import signal
import sys
from pathlib import Path

import pytest

from operations.machine import docker_engine
from operations.machine.progress import SetupError
from tests.podman import answering_podman

FAKE_ENGINE = """
import http.server, json, os, signal, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith("/info"):
            signal.pause()  # as while it looks up the name of a registry
        body = json.dumps({"ApiVersion": "1.41", "Version": "99.1"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return "client"
print("process", os.getpid(), flush=True)
socketserver.UnixStreamServer(sys.argv[1], Handler).serve_forever()
"""


def test_a_missing_engine_is_reported_with_advice(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/docker.sock"
    with pytest.raises(SetupError) as caught:
        docker_engine.ensure(url, tmp_path / "log", lambda line: None)
    assert f"{tmp_path}/docker.sock does not exist" in str(caught.value)
    assert "apt-get install docker.io iptables" in str(caught.value)
    assert "COMPUTE_DOCKER_URL" in str(caught.value)


def test_something_that_is_no_engine_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()
    assert "does not answer" in docker_engine.examine(f"unix://{tmp_path}/docker.sock").problem


def test_podman_is_named_and_nothing_is_installed_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering_podman(tmp_path) as url:
        monkeypatch.setattr(docker_engine, "DEFAULT_URL", url)  # as with the package podman-docker
        assert docker_engine.examine(url).version == "4.3.1"
        with pytest.raises(SetupError, match="it is Podman, which leaves out"):
            docker_engine.ensure(url, tmp_path / "log", pytest.fail)


def test_an_engine_that_exits_is_reported_with_its_log(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "echo no room on the disk; exit 3"]
    engine = docker_engine.start(f"unix://{tmp_path}/d.sock", command, tmp_path / "var" / "log", lambda line: None)
    assert "status 3" in engine.problem
    assert "no room on the disk" in engine.problem


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the server is left running on purpose
def test_setup_waits_for_a_started_engine(tmp_path: Path) -> None:
    url, log = f"unix://{tmp_path}/d.sock", tmp_path / "log"
    said: list[str] = []
    command = [sys.executable, "-c", FAKE_ENGINE, f"{tmp_path}/d.sock"]
    try:
        started = docker_engine.start(url, command, log, said.append)
        assert started == docker_engine.DockerEngine(version="99.1")
        assert docker_engine.ensure(url, log, said.append) == started
        assert said[-1] == "Docker Engine 99.1"
    finally:
        os.kill(int(log.read_text().split()[1]), signal.SIGTERM)
