"""A session is parked and resumed on the whole platform: its package and its address stay, its GPU was another's."""

import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.containers import container_name, saved_reference
from tests.platform import Platform
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.long]

EVERYTHING = {"image": "gpuplatform/python:3.11", "cpu": 1, "memory": "1GiB", "fgpu": "2"}  # the whole GPU of the demo
PACKAGE = """
set -e
mkdir -p /tmp/kept/DEBIAN /tmp/kept/usr/bin
printf '%s\\n' 'Package: kept' 'Version: 1' 'Architecture: all' 'Maintainer: nobody' 'Description: kept' \\
    >/tmp/kept/DEBIAN/control
printf '#!/bin/sh\\necho still here\\n' >/tmp/kept/usr/bin/kept
chmod 755 /tmp/kept/usr/bin/kept
dpkg-deb --build /tmp/kept /tmp/kept.deb
sudo apt-get install --yes /tmp/kept.deb
echo mine >~/notes
"""


@pytest.fixture
def client(platform: Platform) -> Iterator[httpx.Client]:
    login = {"email": "developer@example.org", "password": platform.passwords["developer@example.org"]}
    token = httpx.post(f"{platform.url}/api/v1/auth/token/", json=login, timeout=SECONDS).json()["token"]
    headers = {"Authorization": f"Token {token}"}
    with httpx.Client(base_url=f"{platform.url}/api/v1/", headers=headers, timeout=SECONDS) as client:
        yield client


def inside(session: dict[str, Any], script: str) -> str:
    """Return what a shell prints in the session's container."""
    name = container_name(session["id"], session["attempt"])
    command = ["docker", "exec", "--user", "work", name, "bash", "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_parked_session_returns_with_package_and_address(client: httpx.Client) -> None:
    def reached(session_id: str, status: str) -> dict[str, Any]:
        path = f"sessions/{session_id}/"
        assert until(lambda: client.get(path).json()["status"] == status)
        found: dict[str, Any] = client.get(path).json()
        return found

    first = client.post("sessions/", json=EVERYTHING).raise_for_status().json()[0]
    session = reached(first["id"], "RUNNING")
    inside(session, PACKAGE)
    app = client.post(f"sessions/{first['id']}/apps/jupyter/", json={}).raise_for_status().json()
    assert until(lambda: client.get(f"sessions/{first['id']}/apps/jupyter/").json()["state"] == "READY")
    other = client.post("sessions/", json=EVERYTHING).raise_for_status().json()[0]
    client.post(f"sessions/{first['id']}/park/").raise_for_status()
    reached(other["id"], "RUNNING")
    assert client.get(f"sessions/{first['id']}/").json()["status"] == "PARKED"
    client.post(f"sessions/{first['id']}/resume/").raise_for_status()
    client.post(f"sessions/{other['id']}/terminate/").raise_for_status()
    session = reached(first["id"], "RUNNING")
    assert session["attempt"] == 2
    assert inside(session, "kept; cat ~/notes; nvidia-smi -L | grep -c GPU") == "still here\nmine\n1\n"
    assert until(lambda: client.get(f"sessions/{first['id']}/apps/jupyter/").json()["state"] == "READY")
    assert client.get(f"sessions/{first['id']}/apps/jupyter/").json()["url"] == app["url"]
    client.post(f"sessions/{first['id']}/terminate/").raise_for_status()
    image = ["docker", "rmi", saved_reference(first["id"], 1)]  # its host would, within minutes
    assert until(lambda: subprocess.run(image, check=False, capture_output=True).returncode == 0)
