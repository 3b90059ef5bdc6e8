"""Readings of a host's GPUs, with a stand-in for NVML."""

import pytest

from hostworker.enforcement.telemetry import GpuSample
from hostworker.gpus.gpu_readings import GpuReadings
from resources.amounts.units import GIB
from resources.models import GpuReading
from tests.factories import make_host

SILENT = GpuSample(utilisation=None, memory_used_bytes=None, temperature=None, power=None)


class Driver:
    """What NVML would say of each device."""

    def __init__(self) -> None:
        self.samples: dict[str, GpuSample] = {}

    def sample(self, uuid: str) -> GpuSample:
        return self.samples.get(uuid, SILENT)


@pytest.mark.django_db
def test_the_last_reading_of_each_gpu_is_kept() -> None:
    host, driver = make_host(gpus=2), Driver()
    first, second = host.gpus.all()
    readings = GpuReadings(host, driver)
    driver.samples[first.uuid] = GpuSample(utilisation=40, memory_used_bytes=GIB, temperature=51, power=None)
    readings.poll()
    assert GpuReading.objects.get().gpu == first  # the other one said nothing
    driver.samples[first.uuid] = GpuSample(utilisation=90, memory_used_bytes=2 * GIB, temperature=70, power=200)
    driver.samples[second.uuid] = GpuSample(utilisation=0, memory_used_bytes=0, temperature=30, power=20)
    readings.poll()
    first.refresh_from_db()
    assert (first.reading.utilisation, first.reading.memory_used, first.reading.power) == (90, 2 * GIB, 200)
    assert second.reading.temperature == 30
    driver.samples.clear()
    readings.poll()
    assert GpuReading.objects.count() == 2
