"""For pytest, in a process that other people's tests run in: what the hook has charged it at the end, and what the
driver has given it. The two differ where the hook loses sight of memory."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

_ASK_THE_DRIVER = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print(memory[2])
"""


def pytest_sessionfinish() -> None:
    out = os.environ.get("FGPU_PROGRAMS_ACCOUNT")
    if out:
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        command = [sys.executable, "-c", _ASK_THE_DRIVER]
        used = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        statics = ctypes.CDLL("libcuda.so.1").fgpuSimStatics
        statics.restype = ctypes.c_ulonglong  # modules' variables, which are charged with the context
        Path(out).write_text(json.dumps({"charged": _charged(), "used": int(used) - statics()}))


def _charged() -> int:
    """What this process' slot of the session's account says of the first GPU."""
    spec = importlib.util.spec_from_file_location("region", os.environ["FGPU_PROGRAMS_REGION_READER"])
    assert spec
    assert spec.loader
    region = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(region)
    totals: list[int] = region.used_bytes(Path(os.environ["FGPU_REGION"]), lambda pid, _started: pid != os.getpid())
    return totals[0]
