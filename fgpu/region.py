"""Reads a session's account from outside of it: struct region in src/region.h."""

from __future__ import annotations

import fcntl
import os
import platform
import struct
from collections.abc import Callable
from pathlib import Path

MAX_GPUS = 16
HOST_MEMORY = MAX_GPUS  # the holder that stands for page-locked memory of the host
NOTE = slice(8, 128)
_MUTEX_BYTES = {"aarch64": 48}.get(platform.machine(), 40)  # pthread_mutex_t
HIGH = 128 + _MUTEX_BYTES
GPU_BASE, GPU_BYTES = HIGH + 8, 600
SLOT_BASE, SLOT_BYTES = GPU_BASE + MAX_GPUS * GPU_BYTES, 160
SLOTS = 256
SHARE_BASE, SHARES = SLOT_BASE + SLOTS * SLOT_BYTES, 192
LOCK_BASE = 1 << 20
_SLOT = struct.Struct(f"=iiQQ{MAX_GPUS + 1}Q")  # pid, pad, start time, stack address, bytes by holder
_SHARE = struct.Struct("=QQ32si4x")  # id, bytes, a bit for each slot that holds it, GPU
SHARE_BYTES = _SHARE.size
CONTENT_BYTES = SHARE_BASE + SHARES * SHARE_BYTES
_FLOCK = struct.Struct("hhqqi4x")  # struct flock

IsGone = Callable[[int, int], bool]  # of a process id in the container and its start time


def used_bytes(path: Path, is_gone: IsGone) -> list[int]:
    """Return what the session's processes hold of each GPU, by its place in the limits, and of HOST_MEMORY.

    A process that has ended without giving back what it held counts no more where its slot is not locked and `is_gone`
    says so. The session can write there what it likes. Raises OSError, and ValueError for a file that is none.
    """
    totals = [0] * (MAX_GPUS + 1)
    living = 0
    with path.open("rb") as file:
        content = file.read(CONTENT_BYTES)
        if len(content) < CONTENT_BYTES:
            raise ValueError("not a region")
        high = int.from_bytes(content[HIGH : HIGH + 4], "little")
        for number in range(min(high, SLOTS)):
            pid, _, started, _, *used = _SLOT.unpack_from(content, SLOT_BASE + number * SLOT_BYTES)
            if not pid or not any(used) or (not _is_locked(file.fileno(), number) and is_gone(pid, started)):
                continue
            totals = [total + amount for total, amount in zip(totals, used, strict=True)]
            living |= 1 << number
    return [max(total - twice, 0) for total, twice in zip(totals, _counted_twice(content, living), strict=True)]


def _counted_twice(content: bytes, living: int) -> list[int]:
    """Return what several living processes hold together, as often as it is in their slots beyond once."""
    twice = [0] * (MAX_GPUS + 1)
    for number in range(SHARES):
        identity, size, holders, gpu = _SHARE.unpack_from(content, SHARE_BASE + number * SHARE_BYTES)
        count = (int.from_bytes(holders, "little") & living).bit_count()
        if identity and count > 1 and 0 <= gpu <= MAX_GPUS:
            twice[gpu] += size * (count - 1)
    return twice


def _is_locked(descriptor: int, number: int) -> bool:
    """Return whether a process holds the slot's lock byte, in whatever pid namespace."""
    probe = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, LOCK_BASE + number, 1, 0)
    found = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, probe))
    return bool(found[0] != fcntl.F_UNLCK)
