"""What the processes of each role take: processor time, memory, descriptors, threads, with all their children."""

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from resources import procfs

TICKS: Final = os.sysconf("SC_CLK_TCK")
MIB: Final = 2**20
KIB: Final = 2**10


@dataclass(frozen=True, slots=True)
class RoleUse:
    """Seconds of processor time so far, and what is held now; memory that is shared counts in parts (PSS)."""

    cpu_seconds: float
    memory_mib: float
    descriptors: int
    threads: int


def uses(roots: Mapping[str, int]) -> dict[str, RoleUse]:
    """Return the use of each role by the process ids of its first processes."""
    children = _children()
    return {role: _use(pid, children) for role, pid in roots.items()}


def process_with(words: str) -> int:
    """Return the id of the process with the lowest one whose command line has these words. Raises ValueError."""
    return min(pid for pid in procfs.pids() if words.encode() in b" ".join(procfs.arguments(pid)))


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for pid in procfs.pids():
        if fields := procfs.stat_fields(f"{pid}/stat"):
            found[int(fields[1])].append(pid)
    return found


def _use(pid: int, children: Mapping[int, list[int]]) -> RoleUse:
    seconds = memory = 0.0
    descriptors = threads = 0
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        times = procfs.stat_fields(f"{one}/stat")[11:15]  # own, and of children that have ended
        seconds += sum(map(int, times)) / TICKS
        pss = next((line for line in procfs.lines(f"{one}/smaps_rollup") if line.startswith("Pss:")), "Pss: 0")
        memory += int(pss.split()[1]) * KIB / MIB
        with suppress(OSError):  # it has ended
            descriptors += len(os.listdir(f"/proc/{one}/fd"))
            threads += len(os.listdir(f"/proc/{one}/task"))
    return RoleUse(seconds, memory, descriptors, threads)
