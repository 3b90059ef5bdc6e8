"""Runs bench/passes.py in a process of its own, on a new database of the embedded PostgreSQL."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from operations.embedded_servers import redis_and_postgres as services

MANAGE = (sys.executable, "manage.py")


def measure_database(hosts: int, waiting: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the times of whole passes (read, plan, write, commit) in seconds; `say` prints progress."""
    with tempfile.TemporaryDirectory(prefix="gp-bench-") as folder:
        os.chmod(folder, 0o755)  # the server runs as another user
        environment = os.environ | {
            "SECRET_KEY": "only-for-the-benchmark-" + "0" * 50,
            "COMPUTE_VAR_DIR": folder,
            "COMPUTE_LOG_LEVEL": "WARNING",
            "DATABASE_URL": "",
            "REDIS_URL": "",
        }
        with services.running(Path(folder), take_over=False):
            subprocess.run([*MANAGE, "migrate", "-v", "0"], env=environment, check=True)
            code = f"from bench.passes import main; main({hosts}, {waiting})"
            command = [*MANAGE, "shell", "--no-imports", "-v", "0", "-c", code]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    *said, figures = done.stdout.splitlines()
    for line in said:
        say(line)
    found: dict[str, Any] = json.loads(figures)
    return found
