"""Records every few seconds what this host's GPUs do as a whole, for the page of hosts."""

import math
import time
from typing import Final

from hostworker.enforcement.telemetry import GpuSample, Sampler
from resources import clock
from resources.hosts.services import record_readings
from resources.models import Gpu, GpuReading, Host

POLL_INTERVAL_SECONDS: Final = 10
LOOK_AGAIN_SECONDS: Final = 60  # for devices that were found, or withdrawn, since


class GpuReadings:
    """Reads the GPUs of one host."""

    def __init__(self, host: Host, sampler: Sampler) -> None:
        self._sampler = sampler
        self._host = host
        self._gpus: list[Gpu] = []
        self._read_at = -math.inf

    def poll(self) -> None:
        """Record what each GPU does now; one that says nothing keeps its last reading, whose age then shows."""
        if time.monotonic() - self._read_at >= LOOK_AGAIN_SECONDS:
            self._gpus, self._read_at = list(Gpu.objects.filter(host=self._host, is_present=True)), time.monotonic()
        samples = [(gpu, self._sampler.sample(gpu.uuid)) for gpu in self._gpus]
        record_readings([_reading(gpu, sample) for gpu, sample in samples if _says_something(sample)])


def _reading(gpu: Gpu, sample: GpuSample) -> GpuReading:
    return GpuReading(
        gpu=gpu,
        at=clock.now(),
        utilisation=sample.utilisation,
        memory_used=sample.memory_used_bytes,
        temperature=sample.temperature,
        power=sample.power,
    )


def _says_something(sample: GpuSample) -> bool:
    known = (sample.utilisation, sample.memory_used_bytes, sample.temperature, sample.power)
    return any(value is not None for value in known)
