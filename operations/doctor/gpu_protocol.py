"""The hardware protocol of fGPU on this host: `doctor --gpu`. Its figures are shown on the page of the host."""

import getpass
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import DatabaseError

from resources.accelerators.kinds import NVIDIA
from resources.hosts import measurements
from resources.hosts.measurements import MeasurementError
from resources.models import Gpu, GpuMeasurement, HostStatus
from sessions.models import GpuShare

RUN: Final = Path(settings.BASE_DIR) / "fgpu" / "hardware" / "run"
FOLDER: Final = "gpu-reports"  # in COMPUTE_VAR_DIR


def measure(name: str, *, python: str = "", force: bool = False) -> GpuMeasurement:
    """Run the protocol on the GPU of this index or UUID, and store its report; what it says goes to our output.

    Raises MeasurementError. With `force` also while sessions may use the GPU, which spoils the figures.
    """
    gpu = _gpu(name)
    if gpu.kind != NVIDIA:
        raise MeasurementError(f"GPU {gpu.index} is of the kind {gpu.kind}, which is lent whole: there are no shares.")
    if not force and (why := _use(gpu)):
        raise MeasurementError(f"{why} --force measures all the same.")
    folder = Path(settings.COMPUTE_VAR_DIR) / FOLDER
    reports = f"*-{gpu.uuid[:12]}.json"
    before = set(folder.glob(reports))
    command = [str(RUN), "--gpu", gpu.uuid, "--out", str(folder)]
    command += ["--simulate"] if gpu.is_simulated else []
    command += ["--force"] if force else []
    command += ["--python", python] if python else []
    done = subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, check=False)
    if not (made := set(folder.glob(reports)) - before):
        raise MeasurementError(f"The protocol wrote no report; it ended with {done.returncode}.")
    path = max(made)
    if not force and (why := _use(_gpu(gpu.uuid))):  # as it is by now
        raise MeasurementError(f"{why} So {path} is not stored: the figures may be wrong.")
    return report(path)


def report(path: Path) -> GpuMeasurement:
    """Store the report in a file. Raises MeasurementError."""
    found = measurements.load(path)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    try:
        return measurements.store(settings.COMPUTE_HOST_NAME, found, by=by)
    except (DatabaseError, MeasurementError) as error:
        why = str(error).strip()
        raise MeasurementError(f"{why} {path} is not stored; `doctor --gpu-report {path}` tries it again.") from error


def _gpu(name: str) -> Gpu:
    here = {
        key: gpu
        for gpu in Gpu.objects.filter(host__name=settings.COMPUTE_HOST_NAME, is_present=True).order_by("-index")
        for key in (str(gpu.index), gpu.uuid)
    }
    if name in here:
        return here[name]
    known = ", ".join(sorted({str(gpu.index) for gpu in here.values()})) or "none"
    raise MeasurementError(f"The host {settings.COMPUTE_HOST_NAME} has no GPU {name}; it has: {known}.")


def _use(gpu: Gpu) -> str:
    """Return why sessions use the GPU, or soon may; "" where they do not."""
    if held := GpuShare.objects.filter(gpu=gpu).count():
        return f"GPU {gpu.index} is held by {held} session{'s' if held > 1 else ''}."
    host = gpu.host
    if host.status == HostStatus.READY and not host.is_cordoned:
        return f"The host {host.name} takes sessions: cordon it first."
    return ""
