"""What is read of accelerators that NVML does not know, and what is not said."""

from pathlib import Path

from hostworker.enforcement.telemetry import GpuSample
from hostworker.gpus.sysfs_sampler import SysfsSampler
from resources.accelerators.devices import Accelerator
from resources.accelerators.tests.trees import GIB, write


def test_amdgpu_says_use_memory_heat_and_power(tmp_path: Path) -> None:
    write(tmp_path, {"gpu_busy_percent": 37, "mem_info_vram_used": 5 * GIB, "hwmon/hwmon3/temp1_input": 64500})
    write(tmp_path, {"hwmon/hwmon3/power1_average": 305_000_000})
    sampler = SysfsSampler()
    sampler.watch([Accelerator(kind="amd.com/gpu", name="0", model="x", uid="AMD-1", sensors=tmp_path)])
    assert sampler.sample("AMD-1") == GpuSample(utilisation=37, memory_used_bytes=5 * GIB, temperature=64, power=305)


def test_what_a_driver_does_not_say_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, {"gpu_busy_percent": "N/A", "hwmon/hwmon0/temp1_input": -3000})
    nothing = GpuSample(utilisation=None, memory_used_bytes=None, temperature=None, power=None)
    sampler = SysfsSampler()
    sampler.watch([Accelerator(kind="a.b/npu", name="0", model="x", uid="NPU-1", sensors=tmp_path)])
    assert [sampler.sample(uid) for uid in ("NPU-1", "NPU-2")] == [nothing, nothing]
