"""How close the GPUs of a host are to each other: NVLink, PCIe switches, CPU sockets. Pure.

The paths are those of `nvidia-smi topo -m`.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

NVLINK_BONUS: Final = 10  # in closeness: any NVLink beats every path over PCIe
MAX_NVLINKS: Final = 36  # that are counted between two GPUs


class GpuPath(StrEnum):
    """What data between two GPUs passes; the closest first."""

    NVLINK = "NV"
    ONE_SWITCH = "PIX"
    SWITCHES = "PXB"
    HOST_BRIDGE = "PHB"
    NUMA_NODE = "NODE"
    SYSTEM = "SYS"


GPU_PATH_WORDS: Final = {
    GpuPath.NVLINK: "NVLink",
    GpuPath.ONE_SWITCH: "one PCIe switch",
    GpuPath.SWITCHES: "several PCIe switches",
    GpuPath.HOST_BRIDGE: "the PCIe host bridge of a CPU",
    GpuPath.NUMA_NODE: "one NUMA node",
    GpuPath.SYSTEM: "the link between NUMA nodes",
}
_CLOSENESS: Final = {
    GpuPath.ONE_SWITCH: 5,
    GpuPath.SWITCHES: 4,
    GpuPath.HOST_BRIDGE: 3,
    GpuPath.NUMA_NODE: 2,
    GpuPath.SYSTEM: 1,
}
Closeness = tuple[tuple[int, ...], ...]  # by the positions of two devices; 0 on the diagonal and where not known


def closeness_of(path: GpuPath, nvlinks: int = 0) -> int:
    """Return a number that is higher for closer GPUs; `nvlinks` counts where the path is NVLink."""
    return NVLINK_BONUS + min(max(nvlinks, 1), MAX_NVLINKS) if path is GpuPath.NVLINK else _CLOSENESS[path]


def closeness_matrix(keys: Iterable[int], closeness: Mapping[tuple[int, int], int]) -> Closeness:
    """Return the closeness of devices by position, from that of pairs of their keys, lower key first.

    () where it says nothing about which devices to choose: all pairs are equally close.
    """
    devices = tuple(keys)
    pairs = [(one, other) for position, one in enumerate(devices) for other in devices[:position]]
    if len({closeness.get((min(pair), max(pair)), 0) for pair in pairs}) < 2:
        return ()
    return tuple(
        tuple(0 if one == other else closeness.get((min(one, other), max(one, other)), 0) for other in devices)
        for one in devices
    )
