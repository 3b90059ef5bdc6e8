"""Describe simulated GPUs to the simulated driver. Pure formatting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20
DRIVER = "570.00-simulated"


@dataclass(frozen=True, kw_only=True)
class SimulatedGpu:
    """A GPU that exists in the simulated driver alone."""

    uuid: str  # GPU- and 36 characters, like a real one
    name: str
    memory: int  # bytes, whole MiB
    sms: int = 64


@dataclass(frozen=True, kw_only=True)
class TimeSlicing:
    """How processes share a simulated GPU's time; fgpu/README.md says where the figures come from."""

    slice_us: int = 2000
    switch_us: int = 100
    yield_us: int = 0  # how long an idle context keeps the GPU from the others
    preempt: bool = True  # whether a kernel is interrupted at the end of its slice

    def __str__(self) -> str:
        return (
            f"timeslice slice_us={self.slice_us} switch_us={self.switch_us} "
            f"yield_us={self.yield_us} preempt={self.preempt:d}"
        )


def format_config(
    gpus: Sequence[SimulatedGpu],
    *,
    driver: str = DRIVER,
    memory_limits: bool = False,
    slicing: TimeSlicing = TimeSlicing(),
) -> str:
    """Return the configuration file's text: what a process that reads it sees, in this order.

    With `memory_limits` the driver offers NVML's per-cgroup limits; it keeps them and does not enforce them.
    """
    lines = [f"driver {driver}", "cuda 12.8", str(slicing), *(["memory_limits"] if memory_limits else [])]
    lines += [f"gpu {gpu.uuid} memory_mib={gpu.memory // MIB} sms={gpu.sms} name={gpu.name}" for gpu in gpus]
    return "\n".join([*lines, ""])
