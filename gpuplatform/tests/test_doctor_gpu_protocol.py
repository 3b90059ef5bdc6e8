"""`doctor --gpu` measures a GPU of this host on the simulated driver, and stores what it found."""

import json
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from fgpu.simulated import DRIVER
from operations.doctor import gpu_protocol
from operations.doctor import gpus as doctor_gpus
from operations.doctor.findings import Verdict
from resources.models import Gpu, GpuMeasurement, Host
from tests.factories import make_gpu, make_host, run_session
from tests.gpu_reports import REPORT, UUID, changed, report_of

STEPS = "--only views memory processes pinned pytorch"
HOST = "gpu7"


@pytest.fixture
def gpu(db: None, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A GPU of this host, which is cordoned; the protocol has few steps here."""
    settings.COMPUTE_HOST_NAME, settings.COMPUTE_VAR_DIR = HOST, tmp_path
    program = tmp_path / "run"
    program.write_text(f'#!/bin/sh\nexec "{gpu_protocol.RUN}" {STEPS} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(gpu_protocol, "RUN", program)
    return make_gpu(host=make_host(name=HOST, gpu_driver=DRIVER, is_cordoned=True), uuid=UUID)


def doctor(*arguments: str) -> str:
    output = StringIO()
    call_command("doctor", *arguments, stdout=output)
    return output.getvalue()


def test_a_gpu_is_measured_and_its_figures_stored(gpu: Gpu) -> None:
    said = doctor("--gpu")
    stored = GpuMeasurement.objects.get(gpu=gpu)
    assert (stored.memory_exact, stored.is_simulated, stored.driver) == (True, True, DRIVER)
    assert (stored.failed, stored.skipped) == ("", "pytorch")
    assert f"with driver {DRIVER}: memory exact." in said
    assert "Left out: PyTorch." in said
    assert not stored.is_outdated


def test_a_failed_step_is_stored_and_told(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**report_of(gpu), "steps": [FAILED]}))
    with pytest.raises(SystemExit):
        doctor("--gpu-report", str(path))
    assert GpuMeasurement.objects.get(gpu=gpu).failed == "memory"


FAILED = {"step": "memory", "state": "failed", "why": "", "seconds": 1}


@pytest.mark.parametrize(
    ("cordoned", "why"), [(False, "takes sessions: cordon it first"), (True, "held by 1 session.")]
)
def test_sessions_are_not_disturbed(gpu: Gpu, cordoned: bool, why: str, tmp_path: Path) -> None:
    if cordoned:
        Host.objects.update(is_cordoned=False)
        run_session(host=gpu.host, fgpu=500)
    Host.objects.update(is_cordoned=cordoned)
    with pytest.raises(CommandError, match=why):
        doctor("--gpu", "0")
    assert not (tmp_path / gpu_protocol.FOLDER).exists()
    doctor("--gpu", "--force")
    assert GpuMeasurement.objects.exists()


def test_figures_beside_sessions_are_not_stored(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = subprocess.run

    def measured_beside(*arguments: Any, **options: Any) -> Any:
        Host.objects.update(is_cordoned=False)
        return measure(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", measured_beside)
    with pytest.raises(CommandError, match=r"takes sessions: cordon it first\. So .* is not stored"):
        doctor("--gpu")
    assert not GpuMeasurement.objects.exists()


def test_other_gpus_and_reports_are_refused(gpu: Gpu, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="has no GPU 3; it has: 0"):
        doctor("--gpu", "3")
    path = tmp_path / "report.json"
    path.write_text(json.dumps(changed(gpu={**REPORT["gpu"], "uuid": UUID[:-1] + "9"})))
    with pytest.raises(CommandError, match=f"`doctor --gpu-report {path}` tries it again"):
        doctor("--gpu-report", str(path))


def test_what_is_lent_whole_has_no_shares_to_measure(gpu: Gpu, tmp_path: Path) -> None:
    Gpu.objects.update(kind="amd.com/gpu")
    with pytest.raises(CommandError, match=r"GPU 0 is of the kind amd\.com/gpu, which is lent whole"):
        doctor("--gpu")
    assert not (tmp_path / gpu_protocol.FOLDER).exists()


def test_a_run_without_a_report_says_so(gpu: Gpu, tmp_path: Path) -> None:
    gpu_protocol.RUN.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(CommandError, match="wrote no report; it ended with 3"):
        doctor("--gpu")


def test_a_changed_driver_is_a_warning(gpu: Gpu) -> None:
    doctor("--gpu")
    assert doctor_gpus.division(is_database_there=True).verdict is Verdict.OK
    Host.objects.update(gpu_driver="580.1")
    finding = doctor_gpus.division(is_database_there=True)
    assert (finding.verdict, "another one since" in finding.text) == (Verdict.WARN, True)
