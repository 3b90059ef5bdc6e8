"""A device's memory as NVML tells it, and what of it can be lent. No Django."""

from dataclasses import dataclass
from typing import Any, Final

import pynvml

from resources.amounts.units import MIB

MAX_RESERVED_PART: Final = 16  # of a small device, at most this part is kept back for contexts


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device: all there are, those that driver and firmware reserve, and those in use beside them."""

    total_bytes: int
    reserved_bytes: int
    used_bytes: int

    def allocatable_bytes(self, context_bytes: int) -> int:
        """Return what shares are cut from, in whole MiB: neither the reserved memory nor that of one context.

        A context's code and heaps grow beyond what sessions are charged for it, and no session holds those of the
        driver's own processes; so one context of `context_bytes` is kept back.
        """
        usable = self.total_bytes - self.reserved_bytes
        reserved = min(context_bytes, usable // MAX_RESERVED_PART)
        return (usable - reserved) // MIB * MIB


def device_memory(handle: Any) -> DeviceMemory:
    """Return the memory of the device or MIG instance behind an NVML handle. Raises pynvml.NVMLError.

    The first version of NVML's function counts reserved memory into the total, and as used; it is asked where a driver
    before R510 knows no other.
    """
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return DeviceMemory(int(memory.total), int(memory.reserved), int(memory.used))
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return DeviceMemory(int(memory.total), 0, int(memory.used))
