"""What /proc of the host says about a container's processes. The worker must be root in the host's pid namespace."""

import re
import time
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from fgpu.mounts import HOOK_PATH
from resources import procfs

PAUSE_SECONDS: Final = 0.001
START_TIMEOUT_SECONDS: Final = 20.0  # for the main process to come up on a host under full load

_CONTAINER = re.compile(r"(?:docker[-/])([0-9a-f]{64})")
_EXECUTABLE: Final = r"^\S+ [r-][w-]x[ps] (\S+) (\S+) ([0-9]+) +"  # offset, device, inode
_HOOK_MAPPING = re.compile(_EXECUTABLE + re.escape(HOOK_PATH) + "$", re.MULTILINE)
_DRIVER_MAPPING = re.compile(_EXECUTABLE + r"\S*/libcuda\.so[^/\n]*$", re.MULTILINE)


def container_of(pid: int) -> str:
    """Return the id of the container that the process is in; "" for none, or when it has ended."""
    match = _CONTAINER.search(procfs.text(f"{pid}/cgroup"))
    return match[1] if match else ""


def cgroup_of(pid: int) -> Path | None:
    """Return the folder of the process' cgroup, where the host has cgroup v2."""
    line = next((line for line in procfs.text(f"{pid}/cgroup").splitlines() if line.startswith("0::/")), "")
    return Path("/sys/fs/cgroup") / line.removeprefix("0::/") if line else None


def started_in(main_pid: int, pid: int) -> int | None:
    """Return when a process started, by its id in the container of `main_pid`; None when it has ended.

    As the container itself reads it: field 22 of its own /proc/<pid>/stat.
    """
    fields = procfs.stat_fields(f"{main_pid}/root/proc/{pid}/stat")
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def hook_inodes(pid: int) -> frozenset[int] | None:
    """Return the inodes that the process has mapped under the hook's name; None when it has ended.

    None of them counts where the process has more copies of a CUDA driver: then one is in a namespace of the loader's
    (dlmopen(3), LD_AUDIT) that has no hook.
    """
    lines = procfs.lines(f"{pid}/maps", procfs.MAPS_BYTES)
    if not (first := next(lines, "")):
        return None
    maps = "\n".join(line for line in chain((first,), lines) if HOOK_PATH in line or "/libcuda.so" in line)
    hooks = _HOOK_MAPPING.findall(maps)
    has_all = _most_copies(_DRIVER_MAPPING.findall(maps)) <= _most_copies(hooks)
    return frozenset(int(inode) for _, _, inode in hooks) if has_all else frozenset()


def _most_copies(mappings: Sequence[tuple[str, str, str]]) -> int:
    """Return how often the same part of one file is mapped; the parts of one copy differ in their offsets."""
    return max(Counter(mappings).values(), default=0)


def starts_hooked(main_pid: int, hooks: Collection[int]) -> bool | None:
    """Wait until it is certain, and return whether a container that was just started has one of the inodes mapped.

    None when it has ended.

    Its main process is the engine's init, which is a static program; what counts is init's first child, the entry
    script. Once that has a child of its own, the loader is done and what is missing will not come.
    """
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        entry = next(iter(procfs.children(main_pid)), None)
        if entry is None and not (procfs.PROC / str(main_pid)).exists():
            return None
        is_settled = entry is not None and bool(procfs.children(entry))
        if entry is not None and (hook_inodes(entry) or frozenset()) & set(hooks):
            return True
        if is_settled:
            return False
        time.sleep(PAUSE_SECONDS)
    return False
