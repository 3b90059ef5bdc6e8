"""PostgreSQL and Redis with new data and all tables, for benchmarks that start the platform's processes themselves."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import bench.apps_ready  # noqa: F401  # before what imports models
from operations.embedded_servers import redis_and_postgres as services
from tests.migrated import begin_platform

MANAGE: Final = (sys.executable, "manage.py")


@contextmanager
def fresh_services(folder: Path, **settings: str) -> Iterator[dict[str, str]]:
    """Run both on data in `folder`, which is new and removed at the end; give the environment of a platform on them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = os.environ | {
        "SECRET_KEY": "only-for-the-benchmark-" + "0" * 50,
        "COMPUTE_VAR_DIR": str(folder),
        "COMPUTE_LOG_LEVEL": "WARNING",
        "DATABASE_URL": "",
        "REDIS_URL": "",
        **settings,
    }
    with services.running(folder, take_over=True):
        if not begin_platform(folder):
            subprocess.run([*MANAGE, "migrate", "-v", "0"], env=environment, check=True)
        yield environment
    shutil.rmtree(folder)


def shell_output(environment: Mapping[str, str], code: str) -> list[str]:
    """Return the lines that code prints in the platform's shell."""
    command = [*MANAGE, "shell", "--no-imports", "-v", "0", "-c", code]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def shell_facts(environment: Mapping[str, str], code: str) -> Any:
    """Return what the last of these lines says as JSON."""
    return json.loads(shell_output(environment, code)[-1])
