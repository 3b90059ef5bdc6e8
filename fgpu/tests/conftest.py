"""Build the hook, the simulated driver and the test programs once, and hand out simulated hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fgpu.mounts import BUILD
from fgpu.tests.host import Host
from tests.exclusive import exclusive

collect_ignore = [] if "FGPU_NVIDIA_TOOLS" in os.environ else ["test_nvidia_tools.py"]


@pytest.fixture(scope="session")
def built() -> Path:
    """Everything `make tests` makes; returns the folder it is in."""
    command = ["make", "-s", "-C", str(BUILD.parent), f"PYTHON={sys.executable}", "tests"]
    with exclusive("fgpu-build"):
        result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return BUILD


@pytest.fixture
def host(built: Path, tmp_path: Path) -> Iterator[Host]:
    """A host with one simulated GPU of 8 GiB; its processes end with the test, and no sanitizer reported."""
    host = Host(tmp_path)
    yield host
    host.stop()
    assert not host.reports()
