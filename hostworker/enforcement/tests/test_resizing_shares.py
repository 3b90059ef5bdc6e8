"""What a host changes of a running container's files as its session is resized, and what it refuses."""

import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fgpu.region import HIGH, LOCK_BASE, SLOT_BASE, SLOT_BYTES, used_bytes
from hostworker.enforcement import figures as shown
from hostworker.enforcement import folders
from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder
from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.programs import PARTS, Programs
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.runtime_protocol import ContainerSpec, GpuGrant, ResizeError
from resources.amounts.units import GIB, MIB
from resources.gpus.shares import Sharing
from resources.gpus.tiers import Tier

UUID = "GPU-00000000-0000-4000-8000-000000000000"
PID = 7  # of a process in the container


class Root(HostPrivileges):
    """Root, to whom the container's processes are as `started` says."""

    def __init__(self) -> None:
        self.started: dict[int, int] = {}
        self.driver: list[dict[str, int]] = []

    def process_started(self, main_pid: int, pid: int) -> int | None:
        return self.started.get(pid)

    def limit_gpu_memory(self, main_pid: int, bytes_by_uuid: Mapping[str, int]) -> None:
        self.driver.append(dict(bytes_by_uuid))


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.setattr(folders, "SETTLE_SECONDS", 0)
    return Root()


@pytest.fixture
def enforcer(root: Root, tmp_path: Path) -> Enforcer:
    for name in PARTS:
        path = tmp_path / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    programs = Programs(build=tmp_path / "build", store=tmp_path / "programs")
    arbiter = Arbiter(programs, ArbiterFolder(tmp_path / "arbiter"))
    return Enforcer(programs, tmp_path / "host", privileges=root, arbiter=arbiter, sees_files=True)


def spec_of(milli: int = 500, memory_bytes: int = 4 * GIB, tier: Tier = Tier.HOOK, cpu: int = 1) -> ContainerSpec:
    grant = GpuGrant(uuid=UUID, share_milli=milli, gpu_milli=2000, memory_bytes=8 * GIB, is_simulated=True, tier=tier)
    return make_spec("any", session="resized", cpu=cpu, memory_bytes=memory_bytes, gpus=(grant,), sharing=Sharing.BURST)


def limits(enforcer: Enforcer) -> list[str]:
    return (enforcer.folders.path(("resized", 1)) / "limits.conf").read_text().splitlines()


@pytest.fixture
def started(enforcer: Enforcer) -> ContainerSpec:
    spec = spec_of()
    enforcer.prepare(spec)
    return spec


def hold(enforcer: Enforcer, gpu_bytes: int, pinned_bytes: int = 0, started: int = 5) -> Path:
    """Let a process of the container hold this much; return the account."""
    region = enforcer.folders.path(("resized", 1)) / "region"
    content = bytearray(region.read_bytes())
    content[HIGH : HIGH + 4] = (1).to_bytes(4, "little")
    slot = struct.pack("=iiQQ17Q", PID, 0, started, 0, gpu_bytes, *[0] * 15, pinned_bytes)
    content[SLOT_BASE : SLOT_BASE + SLOT_BYTES] = slot
    region.write_bytes(content)
    return region


def test_bytes_written_to_a_region_count_without_being_read(enforcer: Enforcer, started: ContainerSpec) -> None:
    region, key = hold(enforcer, 0), ("resized", 1)
    assert enforcer.folders.written_bytes() == {key: 0}
    with region.open("ab") as file:
        file.write(bytes(4 * MIB))
        os.fsync(file.fileno())
    assert 3 * MIB < enforcer.folders.written_bytes()[key] <= 4 * MIB
    os.truncate(region, 2**40)  # takes no disk, and more memory than there is
    assert not any(used_bytes(region, lambda pid, started: True))
    assert enforcer.folders.written_bytes()[key] <= 4 * MIB


def test_charged_memory_is_read_by_device(enforcer: Enforcer, started: ContainerSpec) -> None:
    hold(enforcer, GIB)
    assert enforcer.folders.charged_memory(("resized", 1)) == {UUID: GIB}


def test_an_account_that_is_none_says_nothing(enforcer: Enforcer, started: ContainerSpec) -> None:
    hold(enforcer, GIB).write_bytes(b"short")
    assert enforcer.folders.charged_memory(("resized", 1)) is None
    assert enforcer.folders.charged_memory(("another", 1)) is None


def test_limits_and_lease_are_rewritten_for_whoever_has_them(
    enforcer: Enforcer, root: Root, started: ContainerSpec
) -> None:
    path = enforcer.folders.path(("resized", 1)) / "limits.conf"
    inode, phase = path.stat().st_ino, limits(enforcer)[4].split()[3]
    assert enforcer.arbiter
    lease = next(enforcer.arbiter.folder.root.glob("*/lease.conf"))
    enforcer.resize(spec_of(milli=200, memory_bytes=2 * GIB), started, 1)
    share = 8 * GIB * 200 // 2000
    assert limits(enforcer)[2:5] == [
        "sharing=burst",
        f"pinned_bytes={2 * GIB}",
        f"dev={UUID} mem_bytes={share} sm_percent=10.00 {phase} ctx_bytes=0",
    ]
    assert lease.read_text() == path.read_text()
    assert (path.stat().st_ino, path.stat().st_mode & 0o777, path.stat().st_uid) == (inode, 0o444, 0)
    before = path.stat().st_mtime_ns
    enforcer.resize(spec_of(milli=200, memory_bytes=2 * GIB), started, 1)
    assert path.stat().st_mtime_ns == before
    assert root.driver == []


@pytest.mark.parametrize(
    ("gpu_bytes", "pinned_bytes", "message"),
    [(GIB, 0, "It uses 1 GiB of GPU memory"), (0, 3 * GIB, "It has page-locked 3 GiB of memory")],
)
def test_less_than_processes_hold_is_refused_and_nothing_written(
    enforcer: Enforcer, root: Root, started: ContainerSpec, gpu_bytes: int, pinned_bytes: int, message: str
) -> None:
    hold(enforcer, gpu_bytes, pinned_bytes)
    root.started = {PID: 5}
    before = limits(enforcer)
    with pytest.raises(ResizeError, match=message):
        enforcer.resize(spec_of(milli=200, memory_bytes=2 * GIB), started, 1)
    assert limits(enforcer) == before
    enforcer.resize(spec_of(milli=250, memory_bytes=3 * GIB), started, 1)


def test_what_is_allocated_while_the_host_waits_counts(
    enforcer: Enforcer, root: Root, started: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.started = {PID: 5}
    before = limits(enforcer)
    waited: list[float] = []

    def allocate_by_the_old_limits(seconds: float) -> None:
        waited.append(seconds)
        hold(enforcer, GIB)

    monkeypatch.setattr(folders, "SETTLE_SECONDS", 0.125)
    monkeypatch.setattr("hostworker.enforcement.folders.time.sleep", allocate_by_the_old_limits)
    with pytest.raises(ResizeError, match="GPU memory"):
        enforcer.resize(spec_of(milli=200), started, 1)
    assert limits(enforcer) == before
    assert waited == [0.125]


def test_a_resize_that_was_cut_off_is_checked_again(
    enforcer: Enforcer, root: Root, started: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, smaller = limits(enforcer), spec_of(milli=200)

    def die(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("hostworker.enforcement.folders.time.sleep", die)
        with pytest.raises(KeyboardInterrupt):
            enforcer.resize(smaller, started, 1)
    assert limits(enforcer) != before
    root.started = {PID: 5}
    hold(enforcer, GIB)  # by the limits of before, while the worker was away
    with pytest.raises(ResizeError, match="GPU memory"):
        enforcer.resize(smaller, started, 1)
    assert limits(enforcer) == before


@pytest.mark.parametrize("processes", [{}, {PID: 6}], ids=["ended", "another with its id"])
def test_what_ended_processes_left_does_not_count(
    enforcer: Enforcer, root: Root, started: ContainerSpec, processes: dict[int, int]
) -> None:
    region = hold(enforcer, GIB)
    root.started = processes
    with region.open("r+b") as file:
        probe = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, LOCK_BASE, 1, 0)
        assert struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, probe))[0] == fcntl.F_UNLCK
    enforcer.resize(spec_of(milli=200), started, 1)
    assert "sm_percent=10.00" in limits(enforcer)[4]


def test_memory_allocated_at_the_last_moment_undoes_the_limits(
    enforcer: Enforcer, root: Root, started: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.started = {PID: 5}
    before = limits(enforcer)
    rewrite = root.rewrite_limits

    def allocate_first(path: Path, text: str) -> None:
        hold(enforcer, GIB)
        rewrite(path, text)

    monkeypatch.setattr(root, "rewrite_limits", allocate_first)
    with pytest.raises(ResizeError, match="GPU memory"):
        enforcer.resize(spec_of(milli=200), started, 1)
    assert limits(enforcer) == before


def test_the_driver_gets_its_new_limit_too(enforcer: Enforcer, root: Root) -> None:
    before = spec_of(tier=Tier.KERNEL)
    enforcer.prepare(before)
    enforcer.resize(spec_of(milli=1000, tier=Tier.KERNEL), before, 1)
    assert root.driver == [{UUID: 4 * GIB}]
    hold(enforcer, 3 * GIB)
    root.started = {PID: 5}
    with pytest.raises(ResizeError, match="GPU memory"):
        enforcer.resize(spec_of(milli=200, tier=Tier.KERNEL), spec_of(milli=1000, tier=Tier.KERNEL), 1)
    assert root.driver[1:] == [{UUID: 4 * GIB}], "what is stored for the driver is as before as well"


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listing = tmp_path / "cpuinfo"
    listing.write_text("\n\n".join(f"processor\t: {number}" for number in range(4)))
    monkeypatch.setattr(shown, "CPUINFO", listing)
    monkeypatch.setattr(shown, "_nodes", lambda: [frozenset(range(4))])


def test_programs_read_the_cpus_and_memory_that_they_have_now(
    enforcer: Enforcer, started: ContainerSpec, four_cpus: None
) -> None:
    folder = enforcer.folders.path(("resized", 1))
    (folder / "cpus").chmod(0o644)
    (folder / "cpus").write_text("1")
    inode = (folder / "cpuinfo").stat().st_ino
    bigger = replace(started, cpu=3, memory_bytes=8 * GIB)
    assert enforcer.figures.repin(bigger) == "0-2"
    enforcer.show(bigger)
    assert (folder / "cpuinfo").read_text().count("processor") == 3
    assert (folder / "online").read_text() == "0-2\n"
    assert f"{8 << 20} kB" in (folder / "meminfo").read_text()
    assert (folder / "cpuinfo").stat().st_ino == inode
    assert enforcer.figures.repin(replace(bigger, cpu=1)) == "0"
    enforcer.show(replace(bigger, cpu=1))
    assert (folder / "cpuinfo").read_text() == "processor\t: 0\n\n"
