"""What a container uses, from its cgroup (v1 and v2) and its network devices, as /sys and /proc of the host say it."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from hostworker.runtime_protocol import ContainerUse
from resources import procfs

CGROUPS: Final = Path("/sys/fs/cgroup")


def use_of(
    container_id: str, pid: int, cgroups: Path = CGROUPS, *, has_host_network: bool = False
) -> ContainerUse | None:
    """Return what the container with this main process uses; None where it has ended or is on another machine.

    What it receives and sends is not known where its network is that of the host.
    """
    try:
        paths = _cgroup_paths(procfs.lines(f"{pid}/cgroup"))
        if not any(container_id in path for path in paths.values()):
            return None
        network = (None, None) if has_host_network else _network(pid)
        return _from_v1(paths, cgroups, *network) if "memory" in paths else _from_v2(paths, cgroups, *network)
    except (OSError, KeyError, ValueError):
        return None


def _cgroup_paths(lines: Iterable[str]) -> dict[str, str]:
    """Return {controller: path}; that of cgroup v2 has the name ""."""
    paths = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path.lstrip("/")
    return paths


def _from_v1(paths: dict[str, str], cgroups: Path, received: int | None, sent: int | None) -> ContainerUse:
    memory, cpu = cgroups / "memory" / paths["memory"], cgroups / "cpuacct" / paths["cpuacct"]
    stat = _flat(memory / "memory.stat")
    cache = stat["total_inactive_file"]
    return ContainerUse(
        cpu_nanoseconds=int((cpu / "cpuacct.usage").read_text()),
        memory_bytes=max(0, int((memory / "memory.usage_in_bytes").read_text()) - cache),
        cache_bytes=cache,
        shared_bytes=stat.get("total_shmem", 0),
        received_bytes=received,
        sent_bytes=sent,
    )


def _from_v2(paths: dict[str, str], cgroups: Path, received: int | None, sent: int | None) -> ContainerUse:
    folder = cgroups / paths[""]
    stat = _flat(folder / "memory.stat")
    cache = stat["inactive_file"]
    return ContainerUse(
        cpu_nanoseconds=_flat(folder / "cpu.stat")["usage_usec"] * 1000,
        memory_bytes=max(0, int((folder / "memory.current").read_text()) - cache),
        cache_bytes=cache,
        shared_bytes=stat.get("shmem", 0),
        received_bytes=received,
        sent_bytes=sent,
    )


def _flat(path: Path) -> dict[str, int]:
    """Return the values of a flat keyed file."""
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def _network(pid: int) -> tuple[int, int]:
    """Return the bytes received and sent by all devices of the process' network namespace but the loopback."""
    received = sent = 0
    for line in islice(procfs.lines(f"{pid}/net/dev"), 2, None):
        device, _, counters = line.partition(":")
        if device.strip() != "lo":
            values = counters.split()
            received, sent = received + int(values[0]), sent + int(values[8])
    return received, sent
