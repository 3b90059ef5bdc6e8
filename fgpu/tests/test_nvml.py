"""All of NVML in a session, as nvidia-ml-py asks for it: nothing tells of the whole GPU, and nothing changes it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from fgpu.functions import read_table
from fgpu.tests.host import GIB, MIB, Host, Session

NOT_SUPPORTED, NO_PERMISSION = 3, 4
ANY = 2**32 - 1  # of a GPU that is not cut into instances

CODES = """
import ctypes, json, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
print(json.dumps({name: getattr(nvml, name)(*[None] * 6) for name in json.loads(sys.stdin.read())}))
"""
# Each getter of a device with as many arguments as it takes, all of them zero.
EVERY_GETTER = """
import ctypes, inspect, json, pynvml as n
n.nvmlInit()
device, said = n.nvmlDeviceGetHandleByIndex(0), {}
for name, getter in vars(n).items():
    if not name.startswith("nvmlDeviceGet") or not inspect.isfunction(getter):
        continue
    required = [p for p in inspect.signature(getter).parameters.values() if p.default is p.empty]
    if [p.name for p in required[:1]] not in (["handle"], ["device"]):
        continue
    try:
        answer = getter(device, *[0] * (len(required) - 1))
        fields = dict(getattr(answer, "_fields_", ()))
        said[name] = {field: getattr(answer, field) for field in fields} or answer
    except n.NVMLError as error:
        said[name] = type(error).__name__
    except (TypeError, AttributeError, ctypes.ArgumentError):
        said[name] = "wants a structure of its caller's"
print(json.dumps(said, default=lambda value: getattr(value, "__dict__", str(value))))
"""


def python(session: Session, script: str, *arguments: str, text: str = "") -> dict[str, Any]:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=session.environment(), input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("kind", "code"), [("refused", NOT_SUPPORTED), ("denied", NO_PERMISSION)])
def test_what_tells_too_much_or_changes_the_gpu_fails(host: Host, kind: str, code: int) -> None:
    names = [f.name for f in read_table() if f.kind == kind and f.name.startswith("nvml")]
    assert len(names) > 60
    assert set(python(host.session(), CODES, text=json.dumps(names)).values()) == {code}


def test_functions_of_a_driver_to_come_are_withheld(host: Host) -> None:
    script = CODES.replace("getattr(nvml, name)(*[None] * 6)", "hasattr(nvml, name)")
    names = json.dumps(["nvmlDeviceGetMemoryInfo_v3", "nvmlDeviceQueryProcessLoad_v9", "nvmlDeviceGetMemoryBusWidth"])
    assert list(python(host.session(), script, text=names).values()) == [False, False, True]
    assert list(python(host.bare(), script, text=names).values()) == [True, True, True]


def test_every_getter_of_nvidia_ml_py_tells_of_the_share(host: Host) -> None:
    with host.session().probe() as stranger, (session := host.session()).probe() as own:
        assert stranger.alloc(GIB) == 0
        assert own.alloc(512 * MIB) == 0
        plain, shown = python(host.bare(), EVERY_GETTER), python(session, EVERY_GETTER)
    assert len(shown) > 150
    own_process = {"pid": own.pid, "usedGpuMemory": 512 * MIB, "gpuInstanceId": ANY, "computeInstanceId": ANY}
    refused = {f.name: "NVMLError_NotSupported" for f in read_table() if f.kind == "refused"}
    differs = {name: shown[name] for name, answer in plain.items() if shown[name] != answer}
    assert differs.pop("nvmlDeviceGetTotalEnergyConsumption") > 0  # later, so more
    assert differs == {name: code for name, code in refused.items() if name in differs} | {
        "nvmlDeviceGetMemoryInfo": {"total": 2 * GIB, "free": 3 * GIB // 2, "used": 512 * MIB},
        **{f"nvmlDeviceGetComputeRunningProcesses{version}": [own_process] for version in ("", "_v2", "_v3")},
    }
