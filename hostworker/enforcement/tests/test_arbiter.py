"""The arbiter's process and folder, with a stand-in for its program; tests/test_fgpu_sessions.py runs the real one."""

import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from hostworker.enforcement import arbiter as arbiter_module
from hostworker.enforcement import arbiter_folder
from hostworker.enforcement.arbiter import STALE_NS, Arbiter, RunningArbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder, Charge, folder_for, own_folder
from hostworker.enforcement.programs import ARBITER, Programs
from resources import procfs
from tests.wait import SECONDS, until

KEY = ("session", 1)
LEASE = "version=2\npolicy=enforce\nsharing=cap\npinned_bytes=0\nend\n"
# Holds the lock as the real one does, says so, and waits.
STAND_IN = """#!/bin/sh
exec 9<>"$2/lock"
until flock -n 9; do flock -sn 9 && flock -u 9 || exit 3; done
echo "pid=$$ build=$4" >"$2/lock"
trap 'exit 0' TERM
while :; do sleep 0.05; done
"""


def build(folder: Path, program: str = STAND_IN) -> None:
    folder.mkdir(exist_ok=True)
    (folder / ARBITER).write_text(program)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    build(tmp_path / "build")
    return Programs(build=tmp_path / "build", store=tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> ArbiterFolder:
    return ArbiterFolder(tmp_path / "arbiter")


@pytest.fixture
def arbiter(programs: Programs, folder: ArbiterFolder) -> Iterator[Arbiter]:
    made = Arbiter(programs, folder)
    yield made
    folder.discard(KEY)
    made.end()


def running(arbiter: Arbiter) -> RunningArbiter:
    """Return the arbiter that runs, once one does."""
    found = until(arbiter.running)
    assert found
    return found


def test_one_runs_while_there_are_sessions_and_is_adopted(
    arbiter: Arbiter, programs: Programs, folder: ArbiterFolder
) -> None:
    arbiter.hold()
    assert arbiter.running() is None
    assert arbiter.charged() is None
    folder.prepare(KEY, LEASE)
    arbiter.hold()
    pid = running(arbiter).pid
    later = Arbiter(programs, folder)  # of a worker that was started anew
    later.hold()
    later.end()
    assert running(later).pid == pid
    assert arbiter.charged() == {}
    (folder.root / "status").write_text(
        "session=session-1 dev=GPU-1 occupied_ns=70 unheld_ns=6 refused=0 processes=1 pids=5\n"
        "session=session-1 dev=GPU-2 occupied_ns=8 unheld_ns=0 refused=3 processes=0 pids=\n"
    )
    assert arbiter.charged() == {
        ("session", "GPU-1"): Charge(total=70, unheld=6),
        ("session", "GPU-2"): Charge(total=8, unheld=0),
    }
    folder.discard(KEY)
    arbiter.end()
    assert not folder.root.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_one_that_was_killed_is_started_again(arbiter: Arbiter, folder: ArbiterFolder) -> None:
    folder.prepare(KEY, LEASE)
    arbiter.hold()
    pid = running(arbiter).pid
    os.kill(pid, signal.SIGKILL)

    def runs_again() -> bool:
        arbiter.hold()
        found = arbiter.running()
        return found is not None and found.pid != pid

    until(runs_again)


def test_one_of_another_build_is_replaced(arbiter: Arbiter, folder: ArbiterFolder, tmp_path: Path) -> None:
    folder.prepare(KEY, LEASE)
    arbiter.hold()
    before = running(arbiter)
    build(tmp_path / "build", STAND_IN + "# another build\n")

    def is_replaced() -> bool:
        arbiter.hold()
        found = arbiter.running()
        return found is not None and found.pid != before.pid and found.build != before.build

    until(is_replaced)


def test_one_is_started_anew_when_leases_change(arbiter: Arbiter, folder: ArbiterFolder) -> None:
    folder.prepare(KEY, LEASE)
    arbiter.hold()
    pid = running(arbiter).pid
    arbiter.set_sharing("cap")
    assert running(arbiter).pid == pid
    arbiter.set_sharing("burst")

    def runs_again() -> bool:
        arbiter.hold()
        found = arbiter.running()
        return found is not None and found.pid != pid

    until(runs_again)


def test_one_that_hangs_is_killed(programs: Programs, folder: ArbiterFolder, tmp_path: Path) -> None:
    now = 10**12
    arbiter = Arbiter(programs, folder, clock=lambda: now)
    grant = folder.prepare(KEY, LEASE).grant
    try:
        arbiter.hold()
        pid = running(arbiter).pid
        grant.write_bytes(struct.pack("=IIQ", 1, 1, now - STALE_NS).ljust(4096, b"\0"))
        arbiter.hold()
        assert running(arbiter).pid == pid
        now += 1
        arbiter.hold()
        until(lambda: not arbiter.running())
    finally:
        folder.discard(KEY)
        arbiter.end()


def test_one_that_keeps_ending_is_not_started_in_a_loop(
    programs: Programs,
    folder: ArbiterFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    build(tmp_path / "build", '#!/bin/sh\necho started >>"$2/starts"\necho why >&2\nexit 1\n')
    monkeypatch.setattr(arbiter_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    arbiter = Arbiter(programs, folder)
    folder.prepare(KEY, LEASE)
    arbiter.hold()

    def is_noted() -> bool:
        arbiter.hold()
        return "has ended with code 1" in caplog.text

    until(is_noted)
    arbiter.hold()
    assert (folder.root / "starts").read_text() == "started\n"
    assert (folder.root / "log").read_text() == "why\n"


def test_one_that_is_still_starting_is_ended(programs: Programs, folder: ArbiterFolder, tmp_path: Path) -> None:
    build(tmp_path / "build", "#!/bin/sh\nwhile :; do sleep 0.05; done\n")
    arbiter = Arbiter(programs, folder)
    folder.prepare(KEY, LEASE)
    arbiter.hold()
    folder.discard(KEY)
    ending = Thread(target=arbiter.end, daemon=True)
    ending.start()
    ending.join(SECONDS)
    assert not ending.is_alive()


def test_without_its_program_nothing_fails(tmp_path: Path, folder: ArbiterFolder) -> None:
    arbiter = Arbiter(Programs(build=tmp_path / "build", store=tmp_path / "store"), folder)
    folder.prepare(KEY, LEASE)
    arbiter.hold()
    assert arbiter.running() is None


def test_a_process_that_is_not_the_arbiter_is_never_ended(arbiter: Arbiter, folder: ArbiterFolder) -> None:
    """The pid in the lock file may be another's by now."""
    folder.prepare(KEY, LEASE)
    arbiter.hold()
    pid = running(arbiter).pid
    (folder.root / "lock").write_text(f"pid={os.getpid()} build=other\n")
    arbiter.hold()
    assert Path(f"/proc/{pid}").exists()
    (folder.root / "lock").write_text(f"pid={pid} build=other\n")


def test_files_that_a_container_has_mounted_stay(folder: ArbiterFolder) -> None:
    files = folder.prepare(KEY, LEASE)
    inode = files.grant.stat().st_ino
    assert files.grant.stat().st_size == 4096
    assert [path.stat().st_mode & 0o777 for path in (files.grant, files.socket_folder, folder.root)] == [
        *(0o644, 0o755, 0o711),
    ]
    folder.set_sharing("burst")
    assert folder.prepare(KEY, LEASE).grant.stat().st_ino == inode
    assert (files.grant.parent / "lease.conf").read_text() == LEASE.replace("cap", "burst")
    assert folder.keys() == {KEY}
    folder.discard(KEY)
    folder.discard(KEY)
    assert folder.keys() == set()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Anybody may make a folder in /dev/shm before the host worker does."""
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("link", "open"):
        with pytest.raises(PermissionError, match="not a folder of the host worker's own"):
            own_folder(tmp_path / name)


def test_the_folder_is_in_memory_where_that_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "self/mountinfo"
    mounts.parent.mkdir()
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    monkeypatch.setattr(arbiter_folder, "MEMORY_FOLDERS", (tmp_path / "none", tmp_path))
    mounts.write_text(f"9 8 0:51 / {tmp_path} rw - tmpfs tmpfs rw\nbroken\n")
    found = folder_for("", tmp_path / "host")
    assert found.parent == tmp_path
    assert found != folder_for("", tmp_path / "other")
    mounts.write_text(f"9 8 8:0 / {tmp_path} rw - ext4 /dev/sda rw\n")
    assert folder_for("", tmp_path / "host") == tmp_path / "host" / "arbiter"
    assert folder_for("/here", tmp_path / "host") == Path("/here")
