"""Read a session's accounting region from the host. It is written by the session's own processes, so its figures are
what the session says of itself: good for plots and messages, never for deciding who gets what."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0x55504766
NOTE = slice(8, 128)
HIGH = 168  # offsets and sizes of struct region in src/region.h
GPU_BASE, GPU_BYTES = 176, 624
SLOT_BASE, SLOT_BYTES = GPU_BASE + 16 * GPU_BYTES, 152
SLOTS = 256


@dataclass(frozen=True)
class GpuUsage:
    """One GPU of the session, in the order of its limits file."""

    used: int  # bytes charged now, those of processes that died since the last request included
    peak: int  # bytes
    refused: int  # requests beyond the share
    throttled_ns: int  # time that launches waited


@dataclass(frozen=True)
class Usage:
    """What a session says about itself."""

    note: str  # why its last process was refused, or empty
    gpus: list[GpuUsage]


def read_usage(path: Path, gpus: int) -> Usage:
    """Return the usage of the first `gpus` GPUs; all zero before the first process of the session uses CUDA."""
    data = path.read_bytes()
    if len(data) < SLOT_BASE + SLOTS * SLOT_BYTES or struct.unpack_from("<I", data)[0] != MAGIC:
        return Usage(note="", gpus=[GpuUsage(0, 0, 0, 0)] * gpus)
    note = data[NOTE].split(b"\0")[0].decode(errors="replace")
    return Usage(note=note, gpus=[_gpu_usage(data, index) for index in range(gpus)])


def _gpu_usage(data: bytes, gpu: int) -> GpuUsage:
    peak, refused, throttled_ns = struct.unpack_from("<QQQ", data, GPU_BASE + gpu * GPU_BYTES)
    used = 0
    for slot in range(SLOT_BASE, SLOT_BASE + SLOTS * SLOT_BYTES, SLOT_BYTES):
        if struct.unpack_from("<i", data, slot)[0]:
            used += struct.unpack_from("<Q", data, slot + 24 + 8 * gpu)[0]
    return GpuUsage(used=used, peak=peak, refused=refused, throttled_ns=throttled_ns)
