"""What sessions write to their host's disk is bounded, and whoever fills it is the one that ends."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from folders.models import Folder
from folders.storage import paths as storage
from hostworker.agent.worker import HostWorker
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.runtime_protocol import DiskSpace, ExecResult
from hostworker.storage import disk_watch
from hostworker.storage.disk_watch import DiskWatch
from resources.amounts.units import GIB, MIB
from resources.models import Host, HostStatus
from sessions.lifecycle import Reason, Status
from sessions.models import Mount, Session
from tests.factories import make_folder, make_host, make_policy, make_root, make_user, run_session

pytestmark = pytest.mark.django_db
RESERVE = 2 * GIB


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> MemoryRuntime:
    """A runtime on an engine of its own."""
    return MemoryRuntime("installation", "here", f"memory://{request.node.name}")


@pytest.fixture
def host() -> Host:
    """A host that takes sessions."""
    return make_host(name="here", status=HostStatus.READY)


def written(runtime: MemoryRuntime, host: Host, size_bytes: int, limit: int | None) -> Session:
    """Return a session that runs and has written so much."""
    session = run_session(host=host, owner=make_user(policy=make_policy(disk_bytes=limit)))
    runtime.create(make_spec("image", session=session.pk, attempt=session.attempt))
    runtime.start(session.pk, session.attempt)
    runtime.change(session.pk, session.attempt, written_bytes=size_bytes)
    return session


def made(runtime: MemoryRuntime, host: Host, files: int, limit: int | None) -> Session:
    """Return a session that runs and has made so many files."""
    session = written(runtime, host, 0, None)
    type(session.owner.policy).objects.filter(pk=session.owner.policy.pk).update(disk_files=limit)
    runtime.change(session.pk, session.attempt, made_files=files)
    return session


def inodes(free: int) -> DiskSpace:
    """Return a disk of a million inodes of which so many are free."""
    return DiskSpace(free_bytes=99 * GIB, total_bytes=99 * GIB, free_files=free, total_files=1_000_000, device=7)


def state(session: Session) -> tuple[str, str]:
    """Return status and reason as they are now."""
    session.refresh_from_db()
    return session.status, session.reason


def test_a_session_is_warned_once_and_then_ended(runtime: MemoryRuntime, host: Host) -> None:
    messages: list[str] = []

    def program(_: object, environment: dict[str, str]) -> ExecResult:
        messages.append(environment["GP_TEXT"])
        return ExecResult(exit_code=0, output="")

    runtime.set_exec_handler(program)  # type: ignore[arg-type]  # of a mapping
    session = written(runtime, host, 95 * MIB, 100 * MIB)
    modest, unlimited = written(runtime, host, 50 * MIB, 100 * MIB), written(runtime, host, 99 * GIB, None)
    for _ in range(2):
        DiskWatch(runtime, host, RESERVE).poll()
    assert state(session)[0] == Status.RUNNING
    assert len(messages) == session.events.filter(reason=Reason.DISK_NEARLY_FULL).count() == 1
    assert "95 MiB" in messages[0]
    runtime.change(session.pk, session.attempt, written_bytes=101 * MIB)
    DiskWatch(runtime, host, RESERVE).poll()
    assert state(session) == (Status.TERMINATING, Reason.DISK_LIMIT)
    assert {state(each)[0] for each in (modest, unlimited)} == {Status.RUNNING}


def test_layers_are_measured_once_a_minute(runtime: MemoryRuntime, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = DiskWatch(runtime, host, RESERVE)
    watch.poll()
    session = written(runtime, host, 101 * MIB, 100 * MIB)
    watch.poll()
    assert state(session)[0] == Status.RUNNING
    monkeypatch.setattr(disk_watch, "MEASURE_SECONDS", 0)
    monkeypatch.setattr(disk_watch, "PAUSE_FACTOR", 0)
    watch.poll()
    assert state(session)[0] == Status.TERMINATING


def test_the_largest_session_ends_when_the_disk_is_almost_full(runtime: MemoryRuntime, host: Host) -> None:
    large, small = written(runtime, host, 3 * GIB, None), written(runtime, host, GIB, None)
    watch = DiskWatch(runtime, host, RESERVE)
    runtime.set_disk_space(DiskSpace(free_bytes=RESERVE * 3 // 4, total_bytes=99 * GIB))
    watch.poll()
    assert (watch.is_short, state(large)[0]) == (True, Status.RUNNING)
    runtime.set_disk_space(DiskSpace(free_bytes=RESERVE // 4, total_bytes=99 * GIB))
    watch.poll()
    assert state(large) == (Status.TERMINATING, Reason.DISK_LIMIT)
    assert state(small)[0] == Status.RUNNING
    runtime.set_disk_space(DiskSpace(free_bytes=RESERVE * 2, total_bytes=99 * GIB))
    watch.poll()
    assert not watch.is_short


def test_nobody_is_blamed_for_a_disk_that_others_fill(runtime: MemoryRuntime, host: Host) -> None:
    session = written(runtime, host, MIB, None)
    runtime.set_disk_space(DiskSpace(free_bytes=0, total_bytes=99 * GIB))
    DiskWatch(runtime, host, RESERVE).poll()
    assert state(session)[0] == Status.RUNNING


@pytest.mark.django_db(transaction=True)
def test_a_host_without_space_takes_no_sessions(runtime: MemoryRuntime, host: Host) -> None:
    worker = HostWorker(runtime, host)
    runtime.set_disk_space(DiskSpace(free_bytes=0, total_bytes=99 * GIB))
    worker.watch_disk()
    worker.reconcile()
    assert Host.objects.get().status == HostStatus.JOINING
    runtime.set_disk_space(DiskSpace(free_bytes=99 * GIB, total_bytes=99 * GIB))
    worker.watch_disk()
    worker.reconcile()
    assert Host.objects.get().status == HostStatus.READY


def test_a_session_with_too_many_files_is_warned_and_ended(runtime: MemoryRuntime, host: Host) -> None:
    session, modest = made(runtime, host, 950, 1000), made(runtime, host, 10, 1000)
    unlimited = made(runtime, host, 5_000_000, None)
    for _ in range(2):
        DiskWatch(runtime, host, RESERVE).poll()
    assert state(session)[0] == Status.RUNNING
    assert "950 files" in session.events.get(reason=Reason.DISK_NEARLY_FULL).detail
    runtime.change(session.pk, session.attempt, made_files=1001)
    DiskWatch(runtime, host, RESERVE).poll()
    assert state(session) == (Status.TERMINATING, Reason.DISK_LIMIT)
    assert {state(each)[0] for each in (modest, unlimited)} == {Status.RUNNING}


def test_who_made_most_files_ends_when_inodes_run_out(runtime: MemoryRuntime, host: Host) -> None:
    maker, other = made(runtime, host, 400_000, None), made(runtime, host, 20_000, None)
    watch = DiskWatch(runtime, host, RESERVE, 5)
    for free, is_short in ((60_000, False), (40_000, True)):
        runtime.set_disk_space(inodes(free))
        watch.poll()
        assert (watch.is_short, state(maker)[0]) == (is_short, Status.RUNNING)
    runtime.set_disk_space(inodes(24_000))
    watch.poll()
    assert state(maker) == (Status.TERMINATING, Reason.DISK_LIMIT)
    assert state(other)[0] == Status.RUNNING


def test_a_disk_without_a_fixed_inode_count_is_never_short(runtime: MemoryRuntime, host: Host) -> None:
    maker = made(runtime, host, 400_000, None)
    runtime.set_disk_space(DiskSpace(free_bytes=99 * GIB, total_bytes=99 * GIB))
    watch = DiskWatch(runtime, host, RESERVE, 5)
    watch.poll()
    assert (watch.is_short, state(maker)[0]) == (False, Status.RUNNING)


def test_files_made_in_a_hurry_are_counted_at_once(runtime: MemoryRuntime, host: Host) -> None:
    watch = DiskWatch(runtime, host, RESERVE, 5)
    runtime.set_disk_space(inodes(900_000))
    watch.poll()
    session = made(runtime, host, 150_000, 100_000)
    runtime.set_disk_space(inodes(850_000))
    watch.poll()
    assert state(session)[0] == Status.RUNNING  # too few for another walk within the minute
    runtime.set_disk_space(inodes(750_000))
    watch.poll()
    assert state(session)[0] == Status.TERMINATING


@pytest.mark.parametrize(("is_urgent", "pause_seconds"), [(False, 190), (True, 10)])
def test_walks_take_a_bounded_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch, is_urgent: bool, pause_seconds: float
) -> None:
    clock = [0.0]
    monkeypatch.setattr(disk_watch, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    pace = disk_watch._Pace()
    with pace.walk():
        clock[0] += 10
    clock[0] += pause_seconds - 1
    assert not pace.is_due(is_urgent=is_urgent)
    clock[0] += 1
    assert pace.is_due(is_urgent=is_urgent)


def test_files_in_folders_of_the_disk_count_as_they_grow(runtime: MemoryRuntime, host: Host, tmp_path: Path) -> None:
    """A large folder is nobody's fault; what a session adds to it is."""
    reader, maker = made(runtime, host, 20_000, None), made(runtime, host, 0, None)
    root = make_root(path=str(tmp_path / "root"))
    storage.prepare_root(root)
    large, grown = (make_folder(each.owner, root=root) for each in (reader, maker))
    Folder.objects.filter(pk=large.pk).update(used_files=800_000)
    for session, folder in ((reader, large), (maker, grown)):
        Mount.objects.create(session=session, folder=folder, folder_name=str(folder), path="/data")
    watch = DiskWatch(runtime, host, RESERVE, 5)
    disk = replace(inodes(900_000), device=tmp_path.stat().st_dev)
    runtime.set_disk_space(disk)
    watch.poll()
    Folder.objects.filter(pk=grown.pk).update(used_files=100_000)
    runtime.set_disk_space(replace(disk, free_files=20_000))
    watch.poll()
    assert state(maker) == (Status.TERMINATING, Reason.DISK_LIMIT)
    assert state(reader)[0] == Status.RUNNING
