"""What NVML says about the processes on this host's GPUs. The simulated NVML is asked in the same way."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pynvml

from resources.gpus.memory import device_memory

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process on a device, as the host sees it; `memory_bytes` is None where the driver does not say."""

    uuid: str
    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """What a device does as a whole; None where the driver does not say."""

    utilisation: int | None  # percent of the last second
    memory_used_bytes: int | None
    temperature: int | None  # degrees Celsius
    power: int | None  # watts


class Sampler(Protocol):
    """What readings of whole devices ask of the driver."""

    def sample(self, uuid: str) -> GpuSample:
        """Return what the device does now."""


class Telemetry(Protocol):
    """What the watchdog asks of the driver."""

    def processes(self, uuid: str) -> list[GpuProcess] | None:
        """Return the processes on the device; None where it does not answer."""

    def busy(self, uuid: str) -> int | None:
        """Return for how many percent of the last second the device worked; None where it does not say."""

    def busy_by_process(self, uuid: str) -> Mapping[int, int]:
        """Return {pid: percent of the SMs} since the last call; {} where nothing ran or no such record is kept."""


class NvmlTelemetry:
    """NVML, opened once: opening it anew can take seconds where no process keeps the driver awake.

    Implements Telemetry.
    """

    def __init__(self) -> None:
        self._is_open = False
        self._seen: dict[str, int] = {}  # time stamp of the last sample by UUID, in microseconds

    def processes(self, uuid: str) -> list[GpuProcess] | None:
        """Return the processes on the device, those under MPS included."""
        sizes = self._ask(uuid, _processes, None)
        if sizes is None:
            return None
        return [GpuProcess(uuid=uuid, pid=pid, memory_bytes=memory) for pid, memory in sizes.items()]

    def busy(self, uuid: str) -> int | None:
        return self._ask(uuid, lambda handle: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu), None)

    def busy_by_process(self, uuid: str) -> Mapping[int, int]:
        samples: Sequence[Any] = self._ask(
            uuid, lambda handle: list(pynvml.nvmlDeviceGetProcessUtilization(handle, self._seen.get(uuid, 0))), ()
        )
        self._seen[uuid] = max((int(sample.timeStamp) for sample in samples), default=self._seen.get(uuid, 0))
        return {int(sample.pid): int(sample.smUtil) for sample in samples}

    def sample(self, uuid: str) -> GpuSample:
        sensor = pynvml.NVML_TEMPERATURE_GPU
        return GpuSample(
            utilisation=self.busy(uuid),
            memory_used_bytes=self._ask(uuid, lambda handle: device_memory(handle).used_bytes, None),
            temperature=self._ask(uuid, lambda handle: int(pynvml.nvmlDeviceGetTemperature(handle, sensor)), None),
            power=self._ask(uuid, lambda handle: round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000), None),
        )

    def _ask(self, uuid: str, question: Callable[[Any], Answer], otherwise: Answer) -> Answer:
        try:
            if not self._is_open:
                pynvml.nvmlInit()
                self._is_open = True
            return question(pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NotFound, pynvml.NVMLError_FunctionNotFound):
            return otherwise
        except pynvml.NVMLError as error:
            logger.warning("GPU %s does not answer: %s", uuid, error)
            return otherwise


def _processes(handle: Any) -> dict[int, int | None] | None:
    """Return {pid: bytes}; pynvml has None for those of which NVML says that it is "not available"."""
    found = [*pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle), *_processes_under_mps(handle)]
    return {int(each.pid): each.usedGpuMemory for each in found}


def _processes_under_mps(handle: Any) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle))
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return []
