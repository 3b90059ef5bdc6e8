"""The use of a container, from the files of cgroup v1 and v2."""

from pathlib import Path

import pytest

from hostworker.runtime.cgroups import use_of
from hostworker.runtime_protocol import ContainerUse
from resources import procfs

NETWORK = """Inter-|   Receive       |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  999  8  0  0  0  0  0  0  999  8  0  0  0  0  0  0
  eth0: 7000  8  0  0  0  0  0  0  300  8  0  0  0  0  0  0
"""
V1 = {
    "memory/docker/c1/memory.usage_in_bytes": "1000\n",
    "memory/docker/c1/memory.stat": "cache 400\ntotal_inactive_file 300\ntotal_shmem 50\n",
    "cpuacct/docker/c1/cpuacct.usage": "5000000\n",
}
V2 = {
    "system.slice/docker-c1.scope/memory.current": "1000\n",
    "system.slice/docker-c1.scope/memory.stat": "anon 600\ninactive_file 300\nshmem 50\n",
    "system.slice/docker-c1.scope/cpu.stat": "usage_usec 5000\nuser_usec 4000\n",
}
V1_PATHS = "4:memory:/docker/c1\n2:cpu,cpuacct:/docker/c1\n0::/docker/c1\n"
V2_PATHS = "0::/system.slice/docker-c1.scope\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(("paths", "files"), [(V1_PATHS, V1), (V2_PATHS, V2)], ids=["v1", "v2"])
def test_the_use_is_read_from_either_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: str, files: dict[str, str]
) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path / "proc")
    write(tmp_path / "proc/7", {"cgroup": paths, "net/dev": NETWORK})
    write(tmp_path / "cgroups", files)
    expected = ContainerUse(
        cpu_nanoseconds=5_000_000,
        memory_bytes=700,
        cache_bytes=300,
        shared_bytes=50,
        received_bytes=7000,
        sent_bytes=300,
    )
    assert use_of("c1", 7, tmp_path / "cgroups") == expected
    assert use_of("c2", 7, tmp_path / "cgroups") is None  # the pid is another's by now
    assert use_of("c1", 8, tmp_path / "cgroups") is None
