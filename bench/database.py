"""Runs bench/passes.py in a process of its own, on a new database of the embedded PostgreSQL."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.fresh_services import fresh_services, shell_output


def measure_database(hosts: int, waiting: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the times of whole passes (read, plan, write, commit) in seconds; `say` prints progress."""
    with tempfile.TemporaryDirectory(prefix="gp-bench-") as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        with fresh_services(Path(folder) / "var") as environment:
            *said, figures = shell_output(environment, f"from bench.passes import main; main({hosts}, {waiting})")
    for line in said:
        say(line)
    found: dict[str, Any] = json.loads(figures)
    return found
