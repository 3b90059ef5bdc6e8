"""A live system is backed up, destroyed and restored: its users sign in, and their sessions have never stopped."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.images import ensure_images
from tests.platform import ROOT, Platform, environment_of, remove_traces, started
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.long]


def client_of(platform: Platform) -> httpx.Client:
    """Return a client that is signed in by password."""
    login = {"email": "developer@example.org", "password": platform.passwords["developer@example.org"]}
    token = (
        httpx.post(f"{platform.url}/api/v1/auth/token/", json=login, timeout=SECONDS).raise_for_status().json()["token"]
    )
    headers = {"Authorization": f"Token {token}"}
    return httpx.Client(base_url=f"{platform.url}/api/v1/", headers=headers, timeout=SECONDS)


def running(client: httpx.Client, session: str) -> dict[str, Any]:
    """Return the session once it runs."""
    path = f"sessions/{session}/"
    assert until(lambda: client.get(path).json()["status"] == "RUNNING")
    found: dict[str, Any] = client.get(path).json()
    return found


def manage(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_destroyed_system_is_restored_with_its_running_session(tmp_path: Path) -> None:
    ensure_images()
    environment = environment_of(tmp_path / "var")
    try:
        with started(environment) as platform, client_of(platform) as client:
            asked = {"image": "gpuplatform/python:3.11", "cpu": 1, "memory": "1GiB", "fgpu": "0.5"}
            launched = client.post("sessions/", json=asked).raise_for_status().json()[0]
            before = running(client, launched["id"])
            backup = manage(environment, "backup", str(tmp_path / "backups")).splitlines()[-1]
        shutil.rmtree((platform.var_dir / "postgres").resolve())
        manage(environment, "restore", backup)
        with started(environment) as restored, client_of(restored) as client:
            after = running(client, launched["id"])
    finally:
        remove_traces(environment)
    assert (after["started_at"], after["attempt"]) == (before["started_at"], before["attempt"])
