"""What /proc of the host says about a container's processes. The worker must be root in the host's pid namespace."""

import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from fgpu.mounts import HOOK_PATH

PROC: Final = Path("/proc")
PAUSE_SECONDS: Final = 0.001
START_TIMEOUT_SECONDS: Final = 20.0  # for the main process to come up on a host under full load

_CONTAINER = re.compile(r"(?:docker[-/])([0-9a-f]{64})")
_HOOK_MAPPING = re.compile(rf"^\S+ [r-][w-]x[ps] \S+ \S+ ([0-9]+) +{re.escape(HOOK_PATH)}$", re.MULTILINE)


def container_of(pid: int) -> str:
    """Return the id of the container that the process is in; "" for none, or when it has ended."""
    match = _CONTAINER.search(_read(f"{pid}/cgroup"))
    return match[1] if match else ""


def cgroup_of(pid: int) -> Path | None:
    """Return the folder of the process' cgroup, where the host has cgroup v2."""
    line = next((line for line in _read(f"{pid}/cgroup").splitlines() if line.startswith("0::/")), "")
    return Path("/sys/fs/cgroup") / line.removeprefix("0::/") if line else None


def started_in(main_pid: int, pid: int) -> int | None:
    """Return when a process started, by its id in the container of `main_pid`; None when it has ended.

    As the container itself reads it: field 22 of its own /proc/<pid>/stat.
    """
    fields = _read(f"{main_pid}/root/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def hook_inodes(pid: int) -> frozenset[int] | None:
    """Return the inodes that the process has mapped under the hook's name; None when it has ended."""
    maps = _read(f"{pid}/maps")
    return frozenset(map(int, _HOOK_MAPPING.findall(maps))) if maps else None


def starts_hooked(main_pid: int, hooks: Collection[int]) -> bool | None:
    """Wait until it is certain, and return whether a container that was just started has one of the inodes mapped.

    None when it has ended.

    Its main process is the engine's init, which is a static program; what counts is init's first child, the entry
    script. Once that has a child of its own, the loader is done and what is missing will not come.
    """
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        entry = next(iter(_children(main_pid)), None)
        if entry is None and not (PROC / str(main_pid)).exists():
            return None
        is_settled = entry is not None and bool(_children(entry))
        if entry is not None and (hook_inodes(entry) or frozenset()) & set(hooks):
            return True
        if is_settled:
            return False
        time.sleep(PAUSE_SECONDS)
    return False


def _children(pid: int) -> list[int]:
    return [int(child) for child in _read(f"{pid}/task/{pid}/children").split()]


def _read(path: str) -> str:
    try:
        return (PROC / path).read_text(errors="replace")
    except OSError:  # the process has ended
        return ""
