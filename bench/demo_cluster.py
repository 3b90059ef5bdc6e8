"""Starts `make demo-cluster` with few hosts, and stops it once sessions run; JSON as the last line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import requests

import bench.apps_ready  # noqa: F401  # before what asks for the apps
from bench.common import load
from operations import embedded
from tests.migrated import begin_platform
from tests.platform import ANNOUNCED, ROOT
from tests.ports import free_port
from tests.wait import until

FOLDER: Final = ROOT / "var" / "bench-demo-cluster"
COMMAND: Final = ("make", "-s", "demo-cluster", "ARGS=--hosts 2 --users 4")
RUNNING: Final = "SELECT count(*) FROM compute_session WHERE status = 'RUNNING'"


def main() -> None:
    """Run the demo, and print."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    begin_platform(FOLDER)
    address = f"127.0.0.1:{free_port()}"
    begun = time.monotonic()
    figures: dict[str, Any] = {}
    with demo(os.environ | {"DEMO_CLUSTER_DIR": str(FOLDER), "COMPUTE_HTTP_ADDRESS": address}):
        figures["ready_seconds"] = round(time.monotonic() - begun, 1)
        requests.get(f"http://{address}/accounts/sign-in/", timeout=60).raise_for_status()
        with psycopg.connect(embedded.database_url(FOLDER), autocommit=True) as database:
            figures["sessions_running"] = until(lambda: (database.execute(RUNNING).fetchone() or (0,))[0])
        figures["sessions_seconds"] = round(time.monotonic() - begun, 1)
    shutil.rmtree(FOLDER)
    sys.stdout.write(json.dumps(figures | {"load": load()}) + "\n")


@contextmanager
def demo(environment: dict[str, str]) -> Iterator[None]:
    """Have the demo run, and be ready, during the block."""
    log = FOLDER / "demo.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(COMMAND, cwd=ROOT, env=environment, stdout=output, stderr=output, process_group=0)
    try:
        until(lambda: ANNOUNCED in log.read_text() or process.poll() is not None, seconds=180)
        if process.poll() is not None:
            raise RuntimeError(f"the demo ended:\n{log.read_text()}")
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


if __name__ == "__main__":
    main()
