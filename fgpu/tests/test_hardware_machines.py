"""What the hardware protocol makes of machines that are not as it would have them: nvidia-smi, MIG, frameworks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fgpu.hardware import frameworks, smi
from fgpu.hardware.common import ROOT, Bench
from fgpu.hardware.protocol import BUSY, NO_GPU

FIRST, SECOND = (f"GPU-8f1c0000-0000-4000-8000-00000000000{number}" for number in (1, 2))
ANSWERS = {  # by driver, what nvidia-smi says of two GPUs, and what of it is understood
    "470.256.02": (
        f"0, {FIRST}, NVIDIA A100-SXM4-40GB, 470.256.02, 40536, 0, Disabled\n"
        f"1, {SECOND}, NVIDIA A100-SXM4-40GB, 470.256.02, 40536, 33, Enabled\n",
        [(40536, 0, False), (40536, 33, True)],
    ),
    "535.261.03": (
        f"0, {FIRST}, NVIDIA GeForce RTX 4090, 535.261.03, 24564, 17, [N/A]\n"
        f"1, {SECOND}, Tesla V100-PCIE-16GB, 535.261.03, 16384, 4, [N/A]\n\n",
        [(24564, 17, False), (16384, 4, False)],
    ),
    "580.159.04": (
        f"0, {FIRST}, NVIDIA H100 80GB HBM3, 580.159.04, 81559, [Insufficient Permissions], Enabled\r\n"
        f"1, {SECOND}, NVIDIA GB10, 580.159.04, [N/A], [N/A], [N/A]\r\n",
        [(81559, None, True), (None, None, False)],
    ),
    "430.64, without MIG": (
        f"0, {FIRST}, Tesla P100, 430.64, 16280, 0\n1, {SECOND}, Tesla P100, 430.64, 16280, 16000\n",
        [(16280, 0, False), (16280, 16000, False)],
    ),
}
FAKE_SMI = """#!/bin/sh
case $1 in
--query-gpu=*) {gpu} ;;
--query-compute-apps=*) {apps} ;;
esac
"""


@pytest.mark.parametrize("driver", ANSWERS)
def test_answers_of_drivers_are_understood(driver: str) -> None:
    text, expected = ANSWERS[driver]
    gpus = smi.parse_gpus(text)
    assert [(gpu.total_mib, gpu.used_mib, gpu.is_cut) for gpu in gpus] == expected
    assert [gpu.uuid for gpu in gpus] == [FIRST, SECOND]
    assert {gpu.driver for gpu in gpus} == {driver.partition(",")[0]}


@pytest.mark.parametrize(
    "text", ["No devices were found\n", "Failed to initialize NVML: Driver/library version mismatch"]
)
def test_other_answers_are_passed_on_in_words(text: str) -> None:
    with pytest.raises(smi.SmiError, match=text.split()[0]):
        smi.parse_gpus(text)


def test_processes_are_listed_by_gpu() -> None:
    text = f"{FIRST}, 4242, /opt/conda/bin/python\n{FIRST}, 17, [Not Found]\nNo running processes found\n"
    assert smi.parse_processes(text) == {FIRST: ["4242 /opt/conda/bin/python", "17 [Not Found]"]}


def fake_machine(folder: Path, gpu: str, apps: str = "true") -> dict[str, str]:
    """Return an environment in which nvidia-smi does this."""
    program = folder / "nvidia-smi"
    program.write_text(FAKE_SMI.format(gpu=gpu, apps=apps))
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "PYTHON": sys.executable}


def run(environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    command = [str(ROOT / "hardware" / "run"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout


ONE = f"echo '0, {FIRST}, NVIDIA H100, 580.1, 81559, {{used}}, {{mig}}'"
TAKEN = f"echo '{FIRST}, 4242, /usr/bin/python'"


def test_a_gpu_that_others_use_is_refused(built: Path, tmp_path: Path) -> None:
    environment = fake_machine(tmp_path, ONE.format(used=900, mig="Disabled"), TAKEN)
    code, said = run(environment)
    assert code == BUSY
    assert "is not measured: used by 1 process: 4242 /usr/bin/python. --force does it all the same." in said
    assert run(environment, "--force")[0] == NO_GPU  # tried, but the driver itself is not there
    assert "used by 1 process" in run(environment, "--dry-run")[1]


def test_memory_of_unseen_processes_is_refused(built: Path, tmp_path: Path) -> None:
    code, said = run(fake_machine(tmp_path, ONE.format(used=20000, mig="[N/A]"), "exit 6"))
    assert (code, "20000 MiB of its memory are in use" in said) == (BUSY, True)


def test_a_gpu_in_mig_mode_is_refused(built: Path, tmp_path: Path) -> None:
    code, said = run(fake_machine(tmp_path, ONE.format(used=0, mig="Enabled")), "--force")
    assert (code, "it is in MIG mode" in said) == (BUSY, True)


def test_a_driver_of_before_mig_is_asked_without(built: Path, tmp_path: Path) -> None:
    old = "case $1 in *mig*) echo 'Field \"mig.mode.current\" is not a valid field to query.'; exit 2 ;; esac; "
    environment = fake_machine(tmp_path, old + f"echo '0, {FIRST}, Tesla P100, 430.64, 16280, 0'")
    assert f"Tesla P100 ({FIRST}), driver 430.64: used by nobody" in run(environment, "--dry-run")[1]


def test_an_unknown_gpu_is_named_with_those_there(built: Path, tmp_path: Path) -> None:
    environment = fake_machine(tmp_path, ONE.format(used=0, mig="Disabled"))
    code, said = run(environment, "--gpu", "3")
    assert (code, f"there is no GPU 3; there are: 0 ({FIRST})" in said) == (NO_GPU, True)


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("", "is not installed in"),
        ("class cuda:\n  is_available = staticmethod(lambda: False)", "without CUDA"),
        ("raise OSError('libcublas.so.12: cannot open')", "cannot be imported"),
        ("class cuda:\n  is_available = staticmethod(lambda: True)", ""),
    ],
)
def test_why_pytorch_is_left_out(torch: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if torch:
        (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = frameworks.needs("PyTorch")(Bench(tmp_path, False, 1))
    assert why in found
    assert bool(found) == bool(why)
