"""pytest plugin: gives the whole run its own embedded PostgreSQL and Redis, below var.

Loaded with `-p`, because the settings are read before any conftest.py.
"""

import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest
from django.test import override_settings

from gpuplatform import embedded
from gpuplatform.bootstrap import services

VAR: Final = Path(__file__).resolve().parent.parent / "var"


def _own_folder() -> tuple[Path, int]:
    """Return the first of var/test, var/test-2, ... that no other run has, and the open file that keeps it ours."""
    for number in itertools.count(1):
        folder = VAR / ("test" if number == 1 else f"test-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return folder, lock
    raise AssertionError("unreachable")


def _write_without_care() -> None:
    """Let PostgreSQL wait for no disk: nobody needs these data after a crash of the machine."""
    with psycopg.connect(embedded.database_url(VAR_DIR), autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")


VAR_DIR, _LOCK = _own_folder()

os.environ.update(
    DEBUG="true",  # static files by their plain names; pytest-django itself then turns DEBUG off
    SECRET_KEY="only-for-tests-" + "0" * 50,
    COMPUTE_VAR_DIR=str(VAR_DIR),
    DATABASE_URL="",
    REDIS_URL="",
    COMPUTE_HTTPS="false",
    COMPUTE_HOST_NAME="test-host",
    COMPUTE_RUNTIME="hostworker.runtime.memory.MemoryRuntime",
    COMPUTE_SIMULATED_GPUS="1x8GiB",
    COMPUTE_LOG_LEVEL="INFO",
)
(VAR_DIR / "static").mkdir(parents=True, exist_ok=True)  # WhiteNoise warns without it
services.start_postgres(VAR_DIR)
services.start_redis(VAR_DIR)
_write_without_care()


@pytest.fixture(autouse=True, scope="session")
def _quick_passwords() -> Iterator[None]:
    """Hash passwords fast: the real hasher takes a third of a second on purpose, for every user that a test makes."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started for the run."""
    services.stop_redis(VAR_DIR)
    services.stop_postgres(VAR_DIR)
    os.close(_LOCK)
