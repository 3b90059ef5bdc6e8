"""The hook's limits file: format, parse and write it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal, get_args

REGION_BYTES = 65536  # struct region in src/region.h
FRAME_MS = 100  # the gate's frame: a container's turn in it begins at its phase
LIMITS_PATH = "/run/fgpu/limits.conf"  # in the container, fixed when the hook is compiled
REGION_PATH = "/run/fgpu/region"
LOOK_MS = 10  # between two looks of a process at its limits, and a tick of the kernel (at most 10 ms); src/reload.c
GRANT_BYTES = 4096  # the page by which the arbiter gives turns; src/grant.h
GRANT_PATH = "/run/fgpu/grant"
ARBITER_FOLDER_PATH = "/run/fgpu/arbiter"  # where the arbiter's socket is

Sharing = Literal["cap", "burst"]  # never above the share; or up to what others leave idle
_SHARING_LINES = tuple(f"sharing={mode}" for mode in get_args(Sharing))


@dataclass(frozen=True, kw_only=True)
class GpuLimit:
    """What one session may use of one GPU."""

    uuid: str  # as NVML prints it: GPU-... or MIG-...
    memory_bytes: int
    sm_percent: Decimal  # of the SMs, at most two decimals; 100 is not gated
    phase_ms: int = 0  # where in the frame the turn begins: shares of one GPU should not overlap
    context_bytes: int = 0  # charged once per process for its context


def format_limits(limits: Sequence[GpuLimit], *, sharing: Sharing = "cap", pinned_bytes: int = 0) -> str:
    """Return the limits file's text. The hook refuses whatever deviates, so this is the one place that writes it.

    `pinned_bytes` bounds the page-locked host memory of the session's processes together; 0 does not.
    """
    head = ["version=2", "policy=enforce", f"sharing={sharing}", f"pinned_bytes={pinned_bytes}"]
    lines = [
        f"dev={limit.uuid} mem_bytes={limit.memory_bytes} sm_percent={limit.sm_percent:.2f} "
        f"phase_ms={limit.phase_ms} ctx_bytes={limit.context_bytes}"
        for limit in limits
    ]
    return "\n".join([*head, *lines, "end", ""])


def parse_limits(text: str) -> list[GpuLimit]:
    """Return the limits in a text of `format_limits`. Raises ValueError for any other text."""
    version, policy, sharing, pinned, *lines = text.splitlines()
    known = (version, policy, lines[-1:]) == ("version=2", "policy=enforce", ["end"])
    if not known or sharing not in _SHARING_LINES or not pinned.startswith("pinned_bytes="):
        raise ValueError("not a complete limits file of this version")
    return [_parse_limit(line) for line in lines[:-1]]


def parse_head(text: str) -> tuple[Sharing, int]:
    """Return the sharing mode and the bound on page-locked bytes in a text of `format_limits`. Raises ValueError."""
    parse_limits(text)
    _version, _policy, sharing, pinned = text.splitlines()[:4]
    return ("burst" if sharing == "sharing=burst" else "cap"), int(pinned.removeprefix("pinned_bytes="))


def rewrite(path: Path, text: str) -> None:
    """Replace the text of a limits file in place: a container has this very file mounted.

    A process may read a part of the old text and a part of the new one; it then goes on with what it had, and reads
    again. Needs root, whose file it is.
    """
    parse_limits(text)
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        data = text.encode()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse_limit(line: str) -> GpuLimit:
    fields = dict(field.split("=", 1) for field in line.split(" "))
    try:
        return GpuLimit(
            uuid=fields["dev"],
            memory_bytes=int(fields["mem_bytes"]),
            sm_percent=Decimal(fields["sm_percent"]),
            phase_ms=int(fields["phase_ms"]),
            context_bytes=int(fields["ctx_bytes"]),
        )
    except (KeyError, InvalidOperation) as error:
        raise ValueError(f"not a limit: {line}") from error


def prepare(
    folder: Path, limits: Sequence[GpuLimit], *, sharing: Sharing = "cap", pinned_bytes: int = 0
) -> tuple[Path, Path]:
    """Write the session's limits file (read-only) and its empty accounting region, and return their paths.

    The region is writable for every process of the session, whatever its user. Writing twice is harmless only before
    the session starts: running processes have the old files mapped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    limits_path, region_path = folder / "limits.conf", folder / "region"
    for path, data, mode in (
        (limits_path, format_limits(limits, sharing=sharing, pinned_bytes=pinned_bytes).encode(), 0o444),
        (region_path, bytes(REGION_BYTES), 0o666),
    ):
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        temporary.write_bytes(data)
        temporary.chmod(mode)
        os.replace(temporary, path)
    return limits_path, region_path
