"""The hardware protocol is complete: its dry run measures everything it would on a real GPU, and all of it passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parent.parent / "hardware" / "run"
CHECKS = [
    "nvidia-smi shows the share",
    "every entry point leads to the hook",
    *(f"memory is capped: {allocator}" for allocator in ("plain", "async", "vmm")),
    "two processes share the cap",
    "a killed process gives its memory back",
    "page-locked memory is capped",
    *(f"{share} % of the SMs: {load}" for load in ("sync", "async", "graph", "tiny") for share in (100, 50, 25)),
    *(
        check
        for us in (1000, 50000)
        for check in (
            *(f"{shares} with kernels of {us} us" for shares in ("2 of 25 %", "4 of 25 %")),
            *(f"25 % alone, {sharing}, {us} us" for sharing in ("cap", "burst")),
        )
    ),
    "launches cost no more",
]


def test_without_a_gpu_it_says_so_and_measures_nothing(built: Path, tmp_path: Path) -> None:
    environment = dict(os.environ) | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [str(RUN), "--dry-run", "--out", str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 1
    assert "nothing was measured" in result.stderr
    assert result.stdout == ""


def test_the_dry_run_checks_everything_and_passes(built: Path, tmp_path: Path) -> None:
    command = [str(RUN), "--dry-run", "--seconds", "1", "--kernels", "1000", "50000", "--out", str(tmp_path)]
    environment = dict(os.environ) | {"PYTHON": sys.executable, "FGPU_CALLS": "500"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    report = json.loads((tmp_path / "report.json").read_text())
    assert [check["check"] for check in report["checks"] if not check["passed"]] == []
    assert [check["check"] for check in report["checks"]] == CHECKS
    assert report["simulated"]
    assert report["gpu"]["driver"] == ["570.00-simulated"]
    assert len(report["gpu"]["hook"]) == 64  # its SHA-256
    assert result.returncode == 0
