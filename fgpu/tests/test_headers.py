"""NVIDIA's headers of PyPI, of CUDA 12.0 to the newest, against the table: whatever is new there has no class yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgpu.functions import main
from fgpu.tests.wheels import extract

HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "nvml.h")
WHEELS = """
nvidia-cuda-runtime-cu12 12.0.146 12.1.105 12.2.140 12.3.101 12.4.127 12.5.82 12.6.77 12.8.90 12.9.79
nvidia-cuda-runtime 13.0.96 13.1.80 13.2.86 13.3.29 13.4.92 13.5.37 newest
nvidia-nvml-dev-cu12 12.0.140 12.1.105 12.2.140 12.3.101 12.4.127 12.5.82 12.6.77 12.8.90 12.9.79
nvidia-nvml-dev 13.0.87 13.1.115 13.2.86 13.3.29 13.4.92 13.5.37 newest
"""
ROWS = [(name, version) for name, *versions in map(str.split, WHEELS.strip().splitlines()) for version in versions]


@pytest.mark.long
@pytest.mark.parametrize(("name", "version"), ROWS)
def test_the_table_knows_every_function_of_the_header(tmp_path: Path, name: str, version: str) -> None:
    found = extract(name if version == "newest" else f"{name}=={version}", HEADERS, tmp_path)
    assert found
    assert main(["check", *map(str, found)]) == 0
