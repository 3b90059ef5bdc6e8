"""What programs in a container read as the machine's CPUs and memory: the session's share instead of the host's.

Where the host runs lxcfs, its files are mounted. Elsewhere the worker writes files of its own, and brings the memory's
up to date every few seconds. CPUs are pinned in either case, so that the affinity says the same; but not where only a
part of a session's cores is guaranteed, which holds for all CPUs of the host together (ADR 70).
"""

import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from fgpu.mounts import BindMount
from hostworker.enforcement.cpu_sets import choose, format_cpus, parse_cpus, resized
from hostworker.enforcement.folders import SessionFolders
from hostworker.enforcement.programs import write_whole
from hostworker.runtime_protocol import ContainerSpec, ContainerUse, Key
from resources.amounts.units import CORE_MILLI

logger = logging.getLogger(__name__)

LXCFS: Final = Path("/var/lib/lxcfs")
LXCFS_FILES: Final = (
    *("proc/cpuinfo", "proc/diskstats", "proc/loadavg", "proc/meminfo", "proc/stat", "proc/swaps", "proc/uptime"),
    "sys/devices/system/cpu/online",
)
NODES: Final = Path("/sys/devices/system/node")
CPUINFO: Final = Path("/proc/cpuinfo")
CPUS: Final = "cpus"  # the CPUs that the attempt is pinned to
MEMINFO: Final = "meminfo"
TARGETS: Final = {MEMINFO: "/proc/meminfo", "cpuinfo": "/proc/cpuinfo", "online": "/sys/devices/system/cpu/online"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFigures:
    """What a container needs to read its own figures; `cpus` is "" where it is not pinned."""

    mounts: tuple[BindMount, ...] = ()
    cpus: str = ""


NO_FIGURES: Final = ShownFigures()


class Figures:
    """The figures of one host's sessions; its files lie in the folders of the attempts."""

    def __init__(self, folders: SessionFolders, *, pins_cpus: bool = True, lxcfs: Path = LXCFS) -> None:
        self._folders = folders
        self._pins_cpus = pins_cpus
        self._lxcfs = lxcfs

    def prepare(self, spec: ContainerSpec) -> ShownFigures:
        """Write the attempt's files and return what its container needs; safe to repeat.

        Nothing that fails here keeps a session from starting: it then reads the host's figures.
        """
        key, is_pinned = (spec.session, spec.attempt), self._pins_cpus and spec.core_milli == CORE_MILLI
        try:
            with self._folders.lock:
                self._folders.path(key).mkdir(parents=True, exist_ok=True)
                cpus = self._pin(key, spec.cpu) if is_pinned else frozenset(range(spec.cpu))
            if not (mounts := self._lxcfs_mounts()):
                mounts = self._own_mounts(key, spec, cpus)
        except OSError as error:
            logger.warning("session %s: reads the host's CPUs and memory as its own: %s", spec.session, error)
            return NO_FIGURES
        return ShownFigures(mounts=tuple(mounts), cpus=format_cpus(cpus) if is_pinned else "")

    def show_memory(self, key: Key, limit_bytes: int, use: ContainerUse) -> None:
        """Bring the attempt's /proc/meminfo up to date, in place, since the container has mounted this very file."""
        path = self._folders.path(key) / MEMINFO
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:  # lxcfs shows it, or the attempt has just ended
            return
        try:
            os.pwrite(descriptor, meminfo(limit_bytes, use).encode(), 0)
        finally:
            os.close(descriptor)

    def repin(self, spec: ContainerSpec) -> str:
        """Return the CPUs of an attempt that is being resized, as the engine takes them; "" where it is not pinned.

        Of those that it has, it keeps as many as it can.
        """
        key = (spec.session, spec.attempt)
        path = self._folders.path(key) / CPUS
        with self._folders.lock:
            if not path.exists():
                return ""
            taken = [_stored(self._folders.path(other) / CPUS) for other in self._folders.keys() - {key}]
            cpus = resized(_stored(path), _nodes(), taken, spec.cpu)
            write_whole(path, format_cpus(cpus).encode(), 0o444)
        return format_cpus(cpus)

    def resize(self, spec: ContainerSpec) -> None:
        """Show a running attempt the CPUs and memory that it has now; a failure is logged."""
        folder = self._folders.path((spec.session, spec.attempt))
        cpus = _stored(folder / CPUS) if (folder / CPUS).exists() else frozenset(range(spec.cpu))
        nothing = ContainerUse(cpu_nanoseconds=0, memory_bytes=0, cache_bytes=0)
        texts: dict[str, Callable[[], str]] = {
            MEMINFO: lambda: meminfo(spec.memory_bytes, nothing),
            "cpuinfo": lambda: cpuinfo(CPUINFO.read_text(), cpus),
            "online": lambda: f"{format_cpus(cpus)}\n",
        }
        for name, text in texts.items():
            try:
                _rewrite(folder / name, text())
            except OSError as error:
                logger.warning("session %s: reads an old %s: %s", spec.session, name, error)

    def _pin(self, key: Key, count: int) -> frozenset[int]:
        """Return the CPUs of the attempt, chosen and stored unless an earlier worker has done so."""
        path = self._folders.path(key) / CPUS
        if path.exists():
            return parse_cpus(path.read_text())
        taken = [_stored(self._folders.path(other) / CPUS) for other in self._folders.keys() - {key}]
        cpus = choose(_nodes(), taken, count)
        write_whole(path, format_cpus(cpus).encode(), 0o444)
        return cpus

    def _lxcfs_mounts(self) -> list[BindMount]:
        if not has_lxcfs(self._lxcfs):
            return []
        return [BindMount(self._lxcfs / name, f"/{name}") for name in LXCFS_FILES if _is_readable(self._lxcfs / name)]

    def _own_mounts(self, key: Key, spec: ContainerSpec, cpus: Collection[int]) -> list[BindMount]:
        folder = self._folders.path(key)
        nothing = ContainerUse(cpu_nanoseconds=0, memory_bytes=0, cache_bytes=0)
        contents = {
            MEMINFO: (meminfo(spec.memory_bytes, nothing), 0o644),
            "cpuinfo": (cpuinfo(CPUINFO.read_text(), cpus), 0o444),
            "online": (f"{format_cpus(cpus)}\n", 0o444),
        }
        for name, (text, mode) in contents.items():
            if not (folder / name).exists():  # a container may have mounted it already
                write_whole(folder / name, text.encode(), mode)
        return [BindMount(folder / name, target) for name, target in TARGETS.items()]


def has_lxcfs(folder: Path = LXCFS) -> bool:
    """Return whether lxcfs runs on this host."""
    return _is_readable(folder / "proc/meminfo")


def meminfo(limit_bytes: int, use: ContainerUse) -> str:
    """Return /proc/meminfo of a machine with this much memory and no swap; always of the same length."""
    cache = min(use.cache_bytes, limit_bytes)
    used = min(use.memory_bytes + cache, limit_bytes)
    free = limit_bytes - used
    values = {
        "MemTotal": limit_bytes,
        "MemFree": free,
        "MemAvailable": free + cache,
        "Buffers": 0,
        "Cached": cache + use.shared_bytes,
        "SwapCached": 0,
        "Active": used - cache,
        "Inactive": cache,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Shmem": use.shared_bytes,
        "Slab": 0,
        "SReclaimable": 0,
    }
    return "".join(f"{name + ':':<16}{value // 1024:>12} kB\n" for name, value in values.items())


def cpuinfo(of_host: str, cpus: Collection[int]) -> str:
    """Return /proc/cpuinfo with these processors alone."""
    blocks = [block for block in of_host.strip().split("\n\n") if _processor(block) in cpus]
    return "".join(f"{block}\n\n" for block in blocks)


def _rewrite(path: Path, text: str) -> None:
    """Replace the text of a file in place, as a container has it mounted; no-op where lxcfs has its place."""
    if not path.exists():
        return
    path.chmod(0o644)
    with path.open("r+") as file:
        file.write(text)
        file.truncate()


def _processor(block: str) -> int:
    name, _, number = block.partition("\n")[0].partition(":")
    return int(number) if name.strip() == "processor" and number.strip().isdecimal() else -1


def _stored(path: Path) -> frozenset[int]:
    try:
        return parse_cpus(path.read_text())
    except (OSError, ValueError):  # discarded meanwhile
        return frozenset()


@lru_cache
def _nodes() -> Sequence[frozenset[int]]:
    """Return the CPUs of each NUMA node that this process may use."""
    allowed = frozenset(os.sched_getaffinity(0))
    files = sorted(NODES.glob("node[0-9]*/cpulist"))
    nodes = [parse_cpus(path.read_text()) & allowed for path in files]
    known = frozenset().union(*nodes)
    return [node for node in (*nodes, allowed - known) if node]


def _is_readable(path: Path) -> bool:
    return os.access(path, os.R_OK)  # unlike exists(), no error where lxcfs has died
