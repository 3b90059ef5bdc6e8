"""The whole platform as `make up` runs it, in processes of its own and on data of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
from psycopg.rows import dict_row

from engine.containers import HOST_LABEL
from operations import embedded
from tests.containers import remove_containers
from tests.images import ensure_images
from tests.migrated import begin_platform
from tests.ports import free_port
from tests.wait import SECONDS, until
from tests.workers import end_arbiter

ROOT = Path(__file__).resolve().parent.parent
ADMIN = "admin@example.org"
LIVE = "SELECT id FROM compute_session WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR', 'PARKED')"
ANNOUNCED = "Ctrl-C stops it."
UNUSABLE = (
    "SELECT image_id FROM resources_imagebuild JOIN resources_image ON resources_image.id = image_id"
    " WHERE is_enabled AND NOT is_usable AND state <> 'FAILED'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A running platform: where it is, who may sign in, and its database."""

    url: str
    var_dir: Path
    host_name: str
    passwords: dict[str, str]
    environment: dict[str, str]

    @property
    def log(self) -> Path:
        """What its processes have written."""
        return self.var_dir / "up.log"

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a query on the platform's own database."""
        with psycopg.connect(embedded.database_url(self.var_dir), row_factory=dict_row) as connection:
            return connection.execute(query, parameters).fetchall()

    def end_sessions(self) -> None:
        """End what still runs or waits, and return once nothing is held."""
        if not (ids := [row["id"] for row in self.rows(LIVE)]):
            return
        login = {"email": ADMIN, "password": self.passwords[ADMIN]}
        token = (
            httpx.post(f"{self.url}/api/v1/auth/token/", json=login, timeout=SECONDS).raise_for_status().json()["token"]
        )
        headers = {"Authorization": f"Token {token}"}
        httpx.post(
            f"{self.url}/api/v1/sessions/terminate/", json={"ids": ids}, headers=headers, timeout=SECONDS
        ).raise_for_status()
        until(lambda: not self.rows(LIVE))

    def held(self) -> dict[str, int]:
        """Return what all leases hold together."""
        (sums,) = self.rows(
            "SELECT count(*) AS sessions, coalesce(sum(cpu), 0)::bigint AS cpu,"
            " coalesce(sum(memory), 0)::bigint AS memory,"
            " (SELECT coalesce(sum(milli), 0)::bigint FROM compute_gpushare) AS fgpu FROM compute_lease"
        )
        return sums


@contextmanager
def running_platform(var_dir: Path, **settings: str) -> Iterator[Platform]:
    """Set a platform up from nothing in `var_dir`, run it until the block ends, and remove what its sessions left."""
    ensure_images()
    shutil.rmtree(var_dir, ignore_errors=True)
    begin_platform(var_dir)
    environment = environment_of(var_dir) | settings
    try:
        with started(environment) as platform:
            yield platform
    finally:
        remove_traces(environment)


def environment_of(var_dir: Path) -> dict[str, str]:
    """Return the environment of a platform of its own with its data in `var_dir`, at ports that are free."""
    return os.environ | {
        "COMPUTE_VAR_DIR": str(var_dir),
        "COMPUTE_ARBITER_DIR": str(var_dir / "arbiter"),
        "COMPUTE_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        "COMPUTE_SSH_ADDRESS": f"127.0.0.1:{free_port()}",
        "COMPUTE_HOST_NAME": f"e2e-{uuid4().hex[:8]}",
        "COMPUTE_RUNTIME": "hostworker.runtime.docker.DockerRuntime",
        "COMPUTE_SHARED_ENGINE": "true",
        "COMPUTE_SIMULATED_GPUS": "1x8GiB",
        "COMPUTE_WEBHOOK_NETWORKS": "127.0.0.0/8",
        "COMPUTE_IMPORT_NETWORKS": "198.18.0.0/15",
        "DATABASE_URL": "",
        "REDIS_URL": "",
    }


@contextmanager
def started(environment: Mapping[str, str]) -> Iterator[Platform]:
    """Run `manage.py up` in this environment until the block ends; data and sessions stay."""
    var_dir = Path(environment["COMPUTE_VAR_DIR"])
    var_dir.mkdir(parents=True, exist_ok=True)
    log = var_dir / "up.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield announced(process, log, var_dir, environment)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(2 * SECONDS)


def remove_traces(environment: Mapping[str, str]) -> None:
    """Remove what the sessions of a platform in this environment left on the machine."""
    remove_containers(f"{HOST_LABEL}={environment['COMPUTE_HOST_NAME']}")
    end_arbiter(Path(environment["COMPUTE_ARBITER_DIR"]))


def announced(process: "subprocess.Popen[bytes]", log: Path, var_dir: Path, environment: Mapping[str, str]) -> Platform:
    """Return the platform that `make up` runs in this environment, which writes to `log`, with its images built."""
    until(lambda: _is_announced(process, log), seconds=900)
    platform = Platform(
        url=f"http://{environment['COMPUTE_HTTP_ADDRESS']}",
        var_dir=var_dir,
        host_name=environment["COMPUTE_HOST_NAME"],
        passwords=dict(re.findall(r"^\s+(\S+@\S+)\s+(\S+)$", log.read_text(), re.MULTILINE)),
        environment=dict(environment),
    )
    until(lambda: not platform.rows(UNUSABLE), seconds=900)  # images are built while the platform runs
    return platform


def _is_announced(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Return whether the platform has said that it is ready; fail with its output when it has ended instead."""
    if process.poll() is not None:
        raise AssertionError(f"the platform did not come up:\n{log.read_text()}")
    return ANNOUNCED in log.read_text()
