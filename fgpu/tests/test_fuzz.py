"""The fuzz targets of fgpu/fuzz: inputs that were kept find no fault, nor do new ones in a minute each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fgpu.mounts import BUILD

CORPUS = BUILD.parent / "fuzz" / "corpus"
TARGETS = ("limits", "region", "memory", "nvml", "gate", "arbiter")
SECONDS = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder in memory, since each input writes files anew."""
    with TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def fault_of(program: Path, name: str, folder: Path, *arguments: str | Path) -> str:
    """Return what a target says that ends with an error, "" of one that does not. The simulated driver leaks."""
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0" if name in ("memory", "nvml", "gate") else ""}
    ended = subprocess.run(
        [program, *arguments], check=False, capture_output=True, text=True, cwd=folder, env=environment
    )
    return ended.stderr if ended.returncode else ""


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_were_kept_find_no_fault(built: Path, folder: Path, name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    assert not fault_of(built / "test" / f"fuzz-{name}", name, folder, *inputs)


@pytest.mark.long(minutes=2)
@pytest.mark.parametrize("name", TARGETS)
def test_new_inputs_find_no_fault(built: Path, folder: Path, name: str) -> None:
    program = built / "fuzz" / name
    subprocess.run(["make", "-s", "-C", BUILD.parent, f"PYTHON={sys.executable}", program], check=True)
    found = folder / "found"
    found.mkdir()
    assert not fault_of(program, name, folder, f"-max_total_time={SECONDS}", "-len_control=0", found, CORPUS / name)
