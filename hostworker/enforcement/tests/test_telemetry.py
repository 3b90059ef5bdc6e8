"""What the host worker makes of NVML's answers, above all of those that say nothing."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from hostworker.enforcement.telemetry import GpuProcess, GpuSample, NvmlTelemetry

NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
GPU_IS_LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have NVML's functions return or raise these; all others are not supported."""

    def function(result: object) -> Any:
        def call(*arguments: object, **named: object) -> object:
            if isinstance(result, Exception):
                raise result
            return result

        return call

    def change(**results: object) -> None:
        for name, result in results.items():
            monkeypatch.setattr(pynvml, f"nvmlDevice{name}", function(result))

    monkeypatch.setattr(pynvml, "nvmlInit", function(None))
    silent = ("MemoryInfo", "Temperature", "PowerUsage", "UtilizationRates", "ProcessUtilization")
    change(**{f"Get{name}": NOT_SUPPORTED for name in (*silent, "MPSComputeRunningProcesses_v3")})
    change(GetHandleByUUID="handle", GetComputeRunningProcesses_v3=[])
    return change


def test_memory_that_is_not_available_is_none_and_not_zero(answer: Any) -> None:
    answer(
        GetComputeRunningProcesses_v3=[
            SimpleNamespace(pid=1, usedGpuMemory=None),
            SimpleNamespace(pid=2, usedGpuMemory=7),
        ]
    )
    assert NvmlTelemetry().processes("GPU-1") == [
        GpuProcess(uuid="GPU-1", pid=1, memory_bytes=None),
        GpuProcess(uuid="GPU-1", pid=2, memory_bytes=7),
    ]


@pytest.mark.parametrize("failure", [NOT_SUPPORTED, GPU_IS_LOST])
def test_unresponsive_device_is_not_idle(answer: Any, failure: pynvml.NVMLError) -> None:
    assert NvmlTelemetry().processes("GPU-1") == []
    answer(GetComputeRunningProcesses_v3=failure)
    assert NvmlTelemetry().processes("GPU-1") is None


def test_what_a_device_does_not_tell_of_itself_is_none(answer: Any) -> None:
    silent = GpuSample(utilisation=None, memory_used_bytes=None, temperature=None, power=None)
    assert NvmlTelemetry().sample("GPU-1") == silent
    answer(GetMemoryInfo=SimpleNamespace(total=80, reserved=1, used=3), GetTemperature=41)
    assert NvmlTelemetry().sample("GPU-1") == GpuSample(
        utilisation=None, memory_used_bytes=3, temperature=41, power=None
    )
