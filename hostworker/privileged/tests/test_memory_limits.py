"""The limits that the driver itself keeps, against the simulated NVML with the functions of driver r615."""

import subprocess
import sys
from pathlib import Path

import pytest

from resources.amounts.units import GIB
from tests.fgpu_sessions import ROOT, ensure_hook_built

UUID = "GPU-00000000-0000-4000-8000-000000000001"
SCRIPT = f"""
from pathlib import Path
import pynvml
from resources.gpus import tiers
from hostworker.runtime_protocol import EnforcementError
from hostworker.privileged import memory_limits
tiers.CGROUP2 = Path("/etc/passwd")
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByUUID("{UUID}")
print(tiers.detect(handle, can_hook=True))
try:
    memory_limits.apply({{"{UUID}": {2 * GIB}}}, Path("/sys/fs/cgroup/docker/abc"))
except EnforcementError as error:
    print(error)
else:
    kept = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=b"/sys/fs/cgroup/docker/abc")
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle, kept)
    print(kept.softLimit, kept.hardLimit)
"""


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    ensure_hook_built()


def answers(folder: Path, feature: str) -> list[str]:
    """Return what the script prints on a simulated driver with the feature."""
    (folder / "gpus.conf").write_text(f"driver 615.71\n{feature}gpu {UUID} memory_mib=8192 sms=64 name=Simulated GPU\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={
            "LD_LIBRARY_PATH": str(ROOT / "fgpu" / "build" / "sim"),
            "FGPU_SIM_CONFIG": str(folder / "gpus.conf"),
            "FGPU_SIM_STATE": str(folder / "state"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_driver_gets_the_share_as_hard_limit_only(tmp_path: Path) -> None:
    assert answers(tmp_path, "memory_limits\n") == ["kernel", f"0 {2 * GIB}"]


def test_unsupported_or_refused_driver_limit_is_an_error(tmp_path: Path) -> None:
    tier, error = answers(tmp_path, "")
    assert tier == "hook"
    assert error == "The NVIDIA driver did not take the session's memory limit: Not Supported."
