"""The simulated driver, as the platform itself uses it: through NVML on the host."""

from __future__ import annotations

import json
import subprocess
import sys

from fgpu.tests.host import GIB, UUIDS, Host

ASK_NVML = """
import json, pynvml as n
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(0)
say = {"uuid": n.nvmlDeviceGetUUID(d), "name": n.nvmlDeviceGetName(d), "driver": n.nvmlSystemGetDriverVersion(),
       "total": n.nvmlDeviceGetMemoryInfo(d).total, "used": n.nvmlDeviceGetMemoryInfo(d, n.nvmlMemory_v2).used,
       "processes": {p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(d)}}
limits = n.c_nvmlSetMemoryLimits_v1_t(b"/sys/fs/cgroup/x", 0, 1 << 30)
try:
    n.nvmlDeviceSetMemoryLimits_v1(d, limits)
    back = n.c_nvmlGetMemoryLimits_v1_t(b"/sys/fs/cgroup/x")
    n.nvmlDeviceGetMemoryLimits_v1(d, back)
    say["hard"] = back.hardLimit
except n.NVMLError_NotSupported:
    say["hard"] = None
print(json.dumps(say))
"""

MORE = """
import json, os, pynvml as n
n.nvmlInit()
d, events, unknown = n.nvmlDeviceGetHandleByIndex(0), n.nvmlEventSetCreate(), 9999
first = n.nvmlDeviceGetTotalEnergyConsumption(d)
try:
    n.nvmlEventSetWait(events, 20)
except n.NVMLError_Timeout:
    waited = True
fields = n.nvmlDeviceGetFieldValues(d, [n.NVML_FI_DEV_POWER_INSTANT, n.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, unknown])
print(json.dumps({
    "waited": waited,
    "fields": [field.nvmlReturn for field in fields],
    "milliwatts": fields[0].value.uiVal,
    "millijoules": fields[1].value.ullVal - first >= 20 * 30,
    "by_bus": n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(d).busId)),
    "is_named": "python" in n.nvmlSystemGetProcessName(os.getpid()),
}))
"""


def ask(host: Host, script: str = ASK_NVML) -> dict[str, object]:
    environment = host.environment()
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    answer: dict[str, object] = json.loads(output)
    return answer


def test_pynvml_finds_the_simulated_gpu_and_what_runs_on_it(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB) == 0
        assert ask(host) == {
            "uuid": UUIDS[0],
            "name": "Simulated GPU 8 GiB",
            "driver": "570.00-simulated",
            "total": 8 * GIB,
            "used": GIB,
            "processes": {str(probe.pid): GIB},
            "hard": None,
        }


def test_memory_of_a_killed_process_is_free_on_the_card(host: Host) -> None:
    probe = host.bare().probe()
    assert probe.alloc(8 * GIB) == 0
    probe.kill()
    assert ask(host)["used"] == 0


def test_the_drivers_own_memory_limits_are_kept_where_configured(host: Host) -> None:
    host.configure(gpus=1, memory_limits=True)
    assert ask(host)["hard"] == GIB


def test_nvml_says_what_the_simulated_gpu_has(host: Host) -> None:
    assert ask(host, MORE) == {
        "waited": True,
        "fields": [0, 0, 3],
        "milliwatts": 30000,
        "millijoules": True,
        "by_bus": UUIDS[0],
        "is_named": True,
    }
