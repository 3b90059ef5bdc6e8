"""What containers read as the machine's CPUs and memory."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hostworker.enforcement import figures as figures_module
from hostworker.enforcement.figures import Figures, cpuinfo, meminfo
from hostworker.enforcement.folders import SessionFolders
from hostworker.runtime.tests.runtime_worlds import MIB, make_spec
from hostworker.runtime_protocol import ContainerSpec, ContainerUse

HOST = "processor\t: 0\nmodel name\t: A\n\nprocessor\t: 1\nmodel name\t: B\n\nprocessor\t: 2\nmodel name\t: C\n\n"


@pytest.fixture(autouse=True)
def _four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_module, "_nodes", lambda: [frozenset(range(4))])


@pytest.fixture
def figures(tmp_path: Path) -> Figures:
    return Figures(SessionFolders(tmp_path / "sessions"), lxcfs=tmp_path / "lxcfs")


def spec(cpu: int) -> ContainerSpec:
    return make_spec("image", cpu=cpu, memory_bytes=512 * MIB)


def test_containers_get_cpus_of_their_own_again_and_again(figures: Figures) -> None:
    one, other = spec(1), spec(3)
    assert (figures.prepare(one).cpus, figures.prepare(other).cpus) == ("0", "1-3")
    assert figures.prepare(one).cpus == "0"  # as a worker does that takes over from one that died


def test_cpus_of_ended_containers_are_given_again(tmp_path: Path, figures: Figures) -> None:
    one, other = spec(2), spec(2)
    assert figures.prepare(one).cpus == "0-1"
    SessionFolders(tmp_path / "sessions").discard((one.session, one.attempt))
    assert figures.prepare(other).cpus == "0-1"


def test_own_files_are_mounted_and_kept_up_to_date(figures: Figures) -> None:
    asked = spec(1)
    mounts = {mount.target: mount for mount in figures.prepare(asked).mounts}
    assert mounts.keys() == {"/proc/meminfo", "/proc/cpuinfo", "/sys/devices/system/cpu/online"}
    assert mounts["/sys/devices/system/cpu/online"].source.read_text() == "0\n"
    source = mounts["/proc/meminfo"].source
    before = source.stat()
    use = ContainerUse(cpu_nanoseconds=0, memory_bytes=200 * MIB, cache_bytes=100 * MIB)
    figures.show_memory((asked.session, asked.attempt), 512 * MIB, use)
    assert source.read_text() == meminfo(512 * MIB, use)
    assert (source.stat().st_ino, source.stat().st_size) == (before.st_ino, before.st_size)


def test_lxcfs_is_mounted_where_the_host_runs_it(tmp_path: Path, figures: Figures) -> None:
    for name in ("proc/meminfo", "proc/stat"):
        (tmp_path / "lxcfs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lxcfs" / name).touch()
    shown = figures.prepare(spec(1))
    assert [mount.target for mount in shown.mounts] == ["/proc/meminfo", "/proc/stat"]
    assert shown.cpus == "0"


def test_without_pinning_the_count_is_shown_all_the_same(tmp_path: Path) -> None:
    unpinned = Figures(SessionFolders(tmp_path), pins_cpus=False, lxcfs=tmp_path)
    shown = unpinned.prepare(spec(2))
    assert shown.cpus == ""
    assert shown.mounts[-1].source.read_text() == "0-1\n"


def test_a_session_that_shares_its_cores_is_not_pinned(tmp_path: Path) -> None:
    figures = Figures(SessionFolders(tmp_path), lxcfs=tmp_path)
    shared = replace(spec(2), core_milli=250)
    shown = figures.prepare(shared)
    assert (shown.cpus, shown.mounts[-1].source.read_text()) == ("", "0-1\n")
    assert figures.repin(shared) == ""


def test_a_folder_that_cannot_be_written_stops_no_session(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shown = Figures(SessionFolders(tmp_path / "file"), lxcfs=tmp_path).prepare(spec(1))
    assert (shown.mounts, shown.cpus) == ((), "")


def test_memory_adds_up_to_the_limit() -> None:
    use = ContainerUse(cpu_nanoseconds=0, memory_bytes=300 * MIB, cache_bytes=50 * MIB, shared_bytes=20 * MIB)
    lines = dict(line.split(":") for line in meminfo(512 * MIB, use).splitlines())
    values = {name: int(value.split()[0]) // 1024 for name, value in lines.items()}
    assert (values["MemTotal"], values["MemFree"], values["MemAvailable"]) == (512, 162, 212)
    assert (values["Cached"], values["Shmem"], values["SwapTotal"]) == (70, 20, 0)


def test_only_its_processors_are_listed() -> None:
    listed = cpuinfo(HOST, {0, 2})
    assert "model name\t: B" not in listed
    assert listed.count("processor") == 2
    assert cpuinfo(Path("/proc/cpuinfo").read_text(), os.sched_getaffinity(0)).count("processor") == os.cpu_count()
