"""A container registry for tests: Debian's docker-registry on a port of 127.0.0.1, open or with one login."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import requests
from docker.api import APIClient

from operations.machine.system_packages import program
from tests.ports import free_port
from tests.wait import SECONDS, until

USERNAME: Final = "platform"
PASSWORD: Final = "registry password"
_HTPASSWD: Final = f"{USERNAME}:$2b$04$ZE1SDTmSw27CKzZHpqCO.e9NAmbmavDfjI6HI9CfswnhXIFxLhRgK\n"  # bcrypt of PASSWORD
_CONFIG: Final = """
version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {folder}/data}}
  delete: {{enabled: true}}
http: {{addr: "{address}"}}
{auth}
"""
_AUTH: Final = "auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}"
ENGINE_URL: Final = "unix:///var/run/docker.sock"
ENGINE_SECONDS: Final = 300  # other tests may keep the engine busy


@dataclass(frozen=True, slots=True)
class LocalRegistry:
    """A running registry; `login` is what the engine's SDK takes as `auth_config`."""

    address: str
    login: Mapping[str, str]

    def push(self, source: str, name: str, labels: Mapping[str, str] | None = None) -> str:
        """Push a copy of an image of the engine, with labels, and leave only the registry with it."""
        reference = f"{self.address}/{name}"
        repository, _, tag = reference.rpartition(":")
        client = APIClient(ENGINE_URL, version="auto", timeout=ENGINE_SECONDS)
        try:
            changes = [f"LABEL {key}={value!r}" for key, value in (labels or {}).items()]
            container = client.create_container(source, command=["true"])["Id"]
            try:
                client.commit(container, repository=repository, tag=tag, changes=changes)
            finally:
                client.remove_container(container, force=True)
            for event in client.push(repository, tag=tag, stream=True, decode=True, auth_config=dict(self.login)):
                assert "error" not in event, event
            client.remove_image(reference)
        finally:
            client.close()
        return reference


@contextmanager
def running_registry(*, with_login: bool = False) -> Iterator[LocalRegistry]:
    """Run a registry for the block, with its data in a temporary folder."""
    path, address = program("docker-registry"), f"127.0.0.1:{free_port()}"
    assert path, "`make test` installs Debian's docker-registry"
    with tempfile.TemporaryDirectory(prefix="gpuplatform-registry-") as folder:
        Path(folder, "htpasswd").write_text(_HTPASSWD)
        auth = _AUTH.format(folder=folder) if with_login else ""
        Path(folder, "config.yml").write_text(_CONFIG.format(folder=folder, address=address, auth=auth))
        server = subprocess.Popen([path, "serve", f"{folder}/config.yml"], stderr=subprocess.DEVNULL)
        try:
            until(lambda: _answers(address))
            login = {"username": USERNAME, "password": PASSWORD, "serveraddress": address} if with_login else {}
            yield LocalRegistry(address, login)
        finally:
            server.terminate()
            server.wait()


def _answers(address: str) -> bool:
    try:
        return requests.get(f"http://{address}/v2/", timeout=SECONDS).status_code in (200, 401)
    except requests.ConnectionError:
        return False
