"""What the processes of each role take: processor time and memory, with all their children."""

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")
MIB: Final = 2**20
KIB: Final = 2**10


@dataclass(frozen=True, slots=True)
class RoleUse:
    """Seconds of processor time so far, and the memory held now: what is shared counts in parts (PSS)."""

    cpu_seconds: float
    memory_mib: float


def uses(roots: Mapping[str, int]) -> dict[str, RoleUse]:
    """Return the use of each role by the process ids of its first processes."""
    children = _children()
    return {role: _use(pid, children) for role, pid in roots.items()}


def process_with(words: str) -> int:
    """Return the id of the process with the lowest one whose command line has these words. Raises ValueError."""
    found = [int(path.name) for path in Path("/proc").glob("[0-9]*") if words in _command(path)]
    return min(found)


def _command(path: Path) -> str:
    with suppress(OSError):
        return (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(_fields(path)[1])].append(int(path.name))
    return found


def _fields(path: Path) -> list[str]:
    """Return the fields of `stat` after the name, which may have spaces: state, parent, ... (proc(5))."""
    return (path / "stat").read_text().rpartition(") ")[2].split()


def _use(pid: int, children: Mapping[int, list[int]]) -> RoleUse:
    seconds = memory = 0.0
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        path = Path("/proc") / str(one)
        with suppress(OSError):
            fields = _fields(path)
            seconds += sum(int(fields[n]) for n in (11, 12, 13, 14)) / TICKS  # own, and of children that have ended
            pss = next(line for line in (path / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
            memory += int(pss.split()[1]) * KIB / MIB
    return RoleUse(seconds, memory)
