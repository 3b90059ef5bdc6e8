"""A bare Debian without a network is installed from one archive, as docs/install.md says, and lends itself."""

import json
import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.images import ensure_images
from tests.systemd_machine import BARE, ROOT, SystemdMachine, closed_network, fresh_machine
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.long(8)]

IMAGE: Final = "gpuplatform/python:3.13"
STEPS: Final = ROOT / "gpuplatform/bootstrap/production/steps.toml"
SCRIPT: Final = ROOT / "gpuplatform/bootstrap/offline.sh"
# With output all the time, or the engine takes the connection for dead.
ALOUD: Final = "cd /folder; ({}) & while kill -0 $! 2>/dev/null; do echo; sleep 1; done; wait $!"
CLIENT: Final = """
import json, pathlib, sys, urllib.request
def ask(path, body=None):
    headers = {"Content-Type": "application/json", "Host": "gpu.example.org", "X-Forwarded-Proto": "https", **login}
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"http://127.0.0.1:8000/api/v1{path}", data, headers)
    return json.load(urllib.request.urlopen(request))
login = {}
kept = pathlib.Path("/run/token")  # a few sign-ins a minute are allowed
if not kept.exists():
    password = pathlib.Path("/etc/gpuplatform/administrator").read_text().strip()
    kept.write_text(ask("/auth/token/", {"email": "you@example.org", "password": password})["token"])
login["Authorization"] = f"Token {kept.read_text()}"
print(json.dumps(ask(sys.argv[1], json.loads(sys.argv[2]) if sys.argv[2:] else None)))
"""


def commands() -> list[str]:
    """Return those that docs/install.md has for a machine without a network."""
    text = (ROOT / "docs/install.md").read_text().partition("**Without a network**")[2]
    return re.findall(r"^    (.*)", text.partition("\n\n|")[0], re.MULTILINE)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdMachine]:
    """A machine with the archive, and its commands carried out."""
    ensure_images()
    folder = tmp_path_factory.mktemp("offline")
    subprocess.run(["sh", SCRIPT, str(folder), IMAGE], cwd=ROOT, check=True)
    (folder / "client.py").write_text(CLIENT)
    with closed_network() as network, fresh_machine(folder, network, BARE) as machine:
        until(lambda: machine.succeeds("systemctl is-system-running --wait"))
        machine.run("ip route del default")  # which leads nowhere, after a while
        for command in commands():
            unattended = command.replace("apt-get install", "DEBIAN_FRONTEND=noninteractive apt-get -qy install")
            machine.run(ALOUD.format(unattended))
        yield machine


def test_the_archive_has_what_installing_asks_for() -> None:
    wanted = re.findall(r"apt-get .*install --no-install-recommends (.*)", STEPS.read_text())
    (had,) = re.findall(r"--download-only install --no-install-recommends (.*)", SCRIPT.read_text())
    asked = {word for line in wanted for word in re.sub(r"\$\(.*echo (\S+)\)", r"\1", line).split()}
    assert {"caddy", "docker.io", "postgresql"} < asked <= set(had.split())


def test_all_in_the_archive_becomes_roots_alone(tmp_path: Path) -> None:
    """Whoever built it: apt trusts these packages, and root unpacks them where users of that machine are."""
    folder = tmp_path / "gpuplatform-offline"
    folder.mkdir()
    (folder / "Packages").touch()
    for path in (folder, folder / "Packages"):
        path.chmod(0o777)
        if os.geteuid() == 0:
            os.chown(path, 1000, 1000)
    last = SCRIPT.read_text().splitlines()[-1]
    subprocess.run(["sh", "-euc", last], env={**os.environ, "work": str(tmp_path), "folder": str(tmp_path)}, check=True)
    with tarfile.open(tmp_path / "gpuplatform-offline.tar") as archive:
        assert {(each.uid, each.gid, each.mode & 0o077) for each in archive} == {(0, 0, 0o055)}


def test_a_bare_machine_lends_itself_without_a_network(machine: SystemdMachine) -> None:
    def ask(*arguments: str) -> str:
        words = shlex.join(["/usr/lib/gpuplatform/.venv/bin/python", "/folder/client.py", *arguments])
        return machine.run(words)

    until(lambda: '"READY"' in ask("/hosts/"), seconds=120)
    session = json.dumps({"image": IMAGE, "cpu": 1, "memory": "512MiB"})
    assert '"status": "PENDING"' in ask("/sessions/", session)  # so the image is usable; this engine cannot limit CPUs
    assert "Python 3.13" in machine.run(f"docker run --rm --network none --entrypoint python3 {IMAGE} --version")
