"""`make up` where something is wrong: a sentence that names it, never a traceback."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from tests.ports import free_port


@pytest.fixture
def var_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gp-") as folder:
        yield Path(folder, "var")


@pytest.mark.docker
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("COMPUTE_HOST_CPU=many", "COMPUTE_HOST_CPU"),
        ("COMPUTE_HTTP_ADDRESS=nowhere", "COMPUTE_HTTP_ADDRESS is 'nowhere'"),
        pytest.param(
            "COMPUTE_VAR_DIR=/proc/nowhere", "No such file or directory: '/proc/nowhere'", marks=pytest.mark.long
        ),
        ("COMPUTE_DOCKER_URL=unix:///nowhere/docker.sock", "there is no Docker Engine at unix:///nowhere/docker.sock"),
        pytest.param(
            "DATABASE_URL=postgresql://nobody@127.0.0.1:1/nothing",
            "'Tables of the database' failed: OperationalError",
            marks=pytest.mark.long,
        ),
        pytest.param("REDIS_URL=redis://127.0.0.1:1/0", "REDIS_URL does not answer", marks=pytest.mark.long),
    ],
)
def test_what_is_wrong_is_said_in_words(var_dir: Path, setting: str, words: str) -> None:
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("COMPUTE_HTTP_ADDRESS", "COMPUTE_SSH_ADDRESS")}
    name, _, value = setting.partition("=")
    done = subprocess.run(
        [sys.executable, "manage.py", "up", "--setup-only"],
        cwd=settings.BASE_DIR,
        env={**os.environ, "COMPUTE_VAR_DIR": str(var_dir), **ports, name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
