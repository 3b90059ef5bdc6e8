"""What the kernel's drivers say of devices that NVML does not know, in the terms of amdgpu and of hwmon."""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from hostworker.enforcement.telemetry import GpuSample
from resources.accelerators import sysfs
from resources.accelerators.devices import Accelerator


class SysfsSampler:
    """Reads the sensors of accelerators. Implements Sampler."""

    def __init__(self) -> None:
        self._folders: Mapping[str, Path] = {}

    def watch(self, accelerators: Iterable[Accelerator]) -> None:
        """Read the sensors of these from now on."""
        self._folders = {each.uid: each.sensors for each in accelerators if each.sensors}

    def sample(self, uuid: str) -> GpuSample:
        folder = self._folders.get(uuid)
        if folder is None:
            return GpuSample(utilisation=None, memory_used_bytes=None, temperature=None, power=None)
        busy = _number(folder, "gpu_busy_percent")
        return GpuSample(
            utilisation=None if busy is None else min(busy, 100),
            memory_used_bytes=_number(folder, "mem_info_vram_used"),
            temperature=_number(folder, "hwmon/hwmon*/temp1_input", unit=1000),  # of thousandths of a degree
            power=_number(folder, "hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input", unit=1_000_000),
        )


def _number(folder: Path, *names: str, unit: int = 1) -> int | None:
    """Return the number that the first of these files says, in another unit; None where there is none."""
    for path in chain.from_iterable(map(folder.glob, names)):
        if (text := sysfs.text(path)).isdecimal():
            return sysfs.number_in(text) // unit
    return None
