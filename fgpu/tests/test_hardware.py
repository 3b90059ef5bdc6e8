"""The hardware protocol is complete: on the simulated driver it measures all that it would on a GPU, and all passes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fgpu.hardware import report
from fgpu.hardware.common import ROOT, Bench, ProtocolStep
from fgpu.hardware.protocol import NO_GPU, SIMULATED_UUID, STEPS, measure

RUN = ROOT / "hardware" / "run"
KERNELS_US = (1000, 50000)
CHECKS = [
    "nvidia-smi shows the share",
    "pynvml shows the share",
    "every entry point leads to the hook",
    *(
        f"memory is capped: {allocator}"
        for allocator in ("plain", "pitched", "managed", "array", "async", "graph", "vmm")
    ),
    "two processes share the cap",
    "a killed process gives its memory back",
    "page-locked memory is capped",
    *(
        check
        for us in KERNELS_US
        for check in (
            *(f"{shares} % with kernels of {us} us" for shares in ("25, 75", "20, 30, 50", "25, 25, 25, 25")),
            f"25 % alone, cap, {us} us",
        )
    ),
    *(f"25 % alone, burst, {us} us" for us in KERNELS_US),
    "an owner gets its share back",
    "launches cost no more",
    *(f"{share} % of the SMs: {load}" for load in ("sync", "async", "graph", "tiny") for share in (100, 50, 25)),
]
NEED_HARDWARE = ["pytorch", "nccl", "jax"]


def run(*arguments: str, program: Path = RUN, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, **environment}
    command = [str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def report_in(folder: Path) -> dict[str, Any]:
    """Return the one report there, which is as the schema says."""
    [path] = folder.glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    jsonschema.validate(found, json.loads(report.SCHEMA.read_text()))
    return found


def states(found: dict[str, Any]) -> dict[str, str]:
    return {step["step"]: step["state"] for step in found["steps"]}


def test_without_a_gpu_it_says_so_and_measures_nothing(built: Path, tmp_path: Path) -> None:
    result = run("--out", str(tmp_path / "out"), PATH="/usr/bin:/bin")
    assert result.returncode == NO_GPU
    assert "nothing was measured" in result.stdout
    assert not (tmp_path / "out").exists()


def test_the_dry_run_says_each_step(built: Path, tmp_path: Path) -> None:
    result = run("--dry-run", "--out", str(tmp_path / "out"), PATH="/usr/bin:/bin")
    assert result.returncode == 0
    assert all(f"{name:<11} up to" in result.stdout and step.does in result.stdout for name, step in STEPS.items())
    assert not (tmp_path / "out").exists()


def test_all_passes_on_the_simulated_driver(built: Path, tmp_path: Path) -> None:
    kernels = map(str, KERNELS_US)
    result = run("--simulate", "--seconds", "1", "--kernels", *kernels, "--out", str(tmp_path), FGPU_CALLS="500")
    found = report_in(tmp_path)
    assert [check for check in found["checks"] if not check["passed"]] == []
    assert [check["check"] for check in found["checks"]] == CHECKS
    assert states(found) == {name: "skipped" if name in NEED_HARDWARE else "passed" for name in STEPS}
    assert (found["simulated"], found["complete"], found["driver"]) == (True, True, "570.00-simulated")
    assert found["figures"]["memory_exact"]
    assert 0 < found["figures"]["share_error_points"] <= 3
    assert 0 <= found["figures"]["handback_ms"] < 50
    assert found["figures"]["torch_training_percent"] is None
    assert "Memory is held to the byte." in result.stdout
    assert result.returncode == 0
    table = report.tables(found)
    assert table.startswith("Simulated GPU 8 GiB (8,192 MiB, 64 SMs; driver 570.00-simulated, CUDA 12.8; hook ")
    assert table.count("\n| ") == len(CHECKS) + 1


def test_installed_files_are_enough(built: Path, tmp_path: Path) -> None:
    """The hook of sessions, entered by namespaces of its own, as on a host without compiler and repository."""
    installed = tmp_path / "usr" / "lib" / "gpuplatform" / "fgpu"
    shutil.copytree(ROOT, installed, ignore=shutil.ignore_patterns("tests", "test", "__pycache__"))
    out = tmp_path / "reports"
    result = run("--simulate", "--out", str(out), program=installed / "hardware" / "run")
    assert result.returncode == 0, result.stdout + result.stderr
    found = report_in(out)
    assert {name for name, state in states(found).items() if state == "passed"} == {
        *("views", "memory", "processes", "pinned"),
    }
    assert not Path("/run/fgpu").exists()  # what is mounted is seen by the session alone


def test_a_step_that_hangs_or_breaks_stops_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hang(bench: Bench) -> None:
        process = subprocess.Popen(["sleep", "1000"], text=True, stdout=subprocess.PIPE)
        bench.running.append(process)
        process.communicate()

    def fall(bench: Bench) -> None:
        raise KeyError("total")

    made = {
        "hang": ProtocolStep("", 1, hang),
        "fall": ProtocolStep("", 9, fall),
        "pass": ProtocolStep("", 9, lambda bench: None),
    }
    for name, step in made.items():
        monkeypatch.setitem(STEPS, name, step)
    bench = Bench(tmp_path, True, 1, out=tmp_path / "report.json", about=dict(ABOUT))
    began = time.monotonic()
    assert measure(bench, [*made], 100) == 1
    assert time.monotonic() - began < 100  # not the 1000 of the program
    assert states(report_in(tmp_path)) == {"hang": "timed out", "fall": "failed", "pass": "passed"}
    assert not bench.running
    assert report.in_words(report_in(tmp_path)) == [
        "hang: timed out: it took more than 1 s",
        "fall: failed: KeyError: 'total'",
    ]


@pytest.mark.parametrize(
    ("states", "exact"),
    [
        (("passed",) * 4, True),
        (("passed", "timed out", "passed", "passed"), False),
        (("passed", "failed", "passed", "passed"), False),
        (("passed", "passed", "passed", "skipped"), None),
        ((), None),
    ],
)
def test_memory_is_exact_where_all_its_steps_say_so(states: tuple[str, ...], exact: bool | None) -> None:
    steps = [{"step": step, "state": state} for step, state in zip(STEPS, states, strict=False)]
    assert report.figures(steps, [])["memory_exact"] is exact


def test_what_comes_after_the_whole_time_is_skipped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, True, 1, out=tmp_path / "report.json", about=dict(ABOUT))
    assert measure(bench, ["views"], 0) == 0
    assert states(report_in(tmp_path)) == {"views": "skipped"}


ABOUT = {
    "schema": report.SCHEMA_VERSION,
    "date": "2026-11-28T12:00:00+00:00",
    "complete": False,
    "simulated": True,
    "version": "",
    "hook": "0" * 64,
    "driver": "570.00",
    "cuda": "12.8",
    "gpu": {"uuid": SIMULATED_UUID, "name": "Simulated", "memory_bytes": 8 << 30, "context_bytes": 0, "sms": 64},
}
