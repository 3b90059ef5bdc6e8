"""An operator's day on a whole platform, in few commands: a typo, a service that is away, a restore, a lost folder."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.images import ensure_images
from tests.platform import ADMIN, ROOT, Platform, environment_of, remove_traces, started
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.long(minutes=3)]

MOST_COMMANDS: Final = 9


class Operator:
    """Runs commands of manage.py and counts them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.commands = 0
        self._environment = environment

    def runs(self, *arguments: str, status: int = 0) -> str:
        """Return what the command writes."""
        self.commands += 1
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == status, done.stdout
        return done.stdout


def make_folder(platform: Platform, name: str) -> str:
    """Return the id of a new folder of the administrator."""
    login = {"email": ADMIN, "password": platform.passwords[ADMIN]}
    token = httpx.post(f"{platform.url}/api/v1/auth/token/", json=login, timeout=SECONDS).raise_for_status().json()
    headers = {"Authorization": f"Token {token['token']}"}
    made = httpx.post(f"{platform.url}/api/v1/folders/", json={"name": name}, headers=headers, timeout=SECONDS)
    return str(made.raise_for_status().json()["id"])


def test_an_operators_day_takes_few_commands(tmp_path: Path) -> None:
    ensure_images()
    environment = environment_of(tmp_path / "var") | {"COMPUTE_METRICS_NETWORKS": "127.0.0.0/8"}
    operator = Operator(environment)
    try:
        with started(environment) as platform:
            assert "default" in operator.runs("add_host", "gpu7", "--group", "defualt", status=1)
            operator.runs("services", "stop", "ssh")
            until(lambda: httpx.get(f"{platform.url}/readyz", timeout=SECONDS).status_code == 503, seconds=5 * SECONDS)
            assert "ssh" in httpx.get(f"{platform.url}/readyz", timeout=SECONDS).text
            assert "FAIL  SSH" in operator.runs("doctor", status=1)
            operator.runs("services", "start", "ssh")
            until(lambda: httpx.get(f"{platform.url}/readyz", timeout=SECONDS).status_code == 200)
            make_folder(platform, "kept")
            backup = operator.runs("backup", str(tmp_path / "backups")).splitlines()[-1]
            lost = make_folder(platform, "made-later")
        shutil.rmtree((platform.var_dir / "postgres").resolve())
        operator.runs("restore", backup)
        with started(environment):
            assert lost in operator.runs("storageroots", "orphans")
            operator.runs("storageroots", "adopt", lost, "--owner", ADMIN, "--name", "made-later")
            assert lost not in operator.runs("storageroots", "orphans")
    finally:
        remove_traces(environment)
    assert operator.commands <= MOST_COMMANDS
