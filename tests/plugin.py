"""pytest plugin: gives the whole run its own embedded PostgreSQL and Redis, below var/test.

Loaded with `-p`, because the settings are read before any conftest.py.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from gpuplatform.bootstrap import services

VAR_DIR = Path(__file__).resolve().parent.parent / "var" / "test"

os.environ.update(
    DEBUG="true",  # static files by their plain names; pytest-django itself then turns DEBUG off
    SECRET_KEY="only-for-tests-" + "0" * 50,
    COMPUTE_VAR_DIR=str(VAR_DIR),
    DATABASE_URL="",
    REDIS_URL="",
    COMPUTE_HTTPS="false",
    COMPUTE_HOST_NAME="test-host",
    COMPUTE_RUNTIME="sessions.runtime.memory.MemoryRuntime",
    COMPUTE_SIMULATED_GPUS="1x8GiB",
    COMPUTE_LOG_LEVEL="INFO",
)
(VAR_DIR / "static").mkdir(parents=True, exist_ok=True)  # WhiteNoise warns without it
services.start_postgres(VAR_DIR)
services.start_redis(VAR_DIR)


@pytest.fixture(autouse=True, scope="session")
def _quick_passwords() -> Iterator[None]:
    """Hash passwords fast: the real hasher takes a third of a second on purpose, for every user that a test makes."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started for the run."""
    services.stop_redis(VAR_DIR)
    services.stop_postgres(VAR_DIR)
