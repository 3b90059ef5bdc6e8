"""Folders are measured when something changes, by one host at a time, and what has expired goes."""

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from folders import sweeps
from folders.files.errors import StorageAccessError
from folders.files.folder_files import FolderFiles
from folders.files.layout import RootDirectory
from folders.files.trash import FolderTrash
from folders.files.walk import REMOVAL_ROUNDS, Usage
from folders.models import Folder, StorageRoot
from folders.quotas import measure
from folders.quotas.rules import record_growth
from folders.sharing import folders as services
from folders.storage import paths as storage
from sessions.launching import services as services_of_sessions
from sessions.lifecycle import Reason, Status
from sessions.models import Mount
from tests.factories import make_policy, make_session, make_user, run_session

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def root(tmp_path: Path) -> StorageRoot:
    """A root on this machine."""
    root = StorageRoot.objects.create(name="local", path=str(tmp_path / "root"), is_default=True)
    storage.prepare_root(root)
    return root


@pytest.fixture
def folder(root: StorageRoot) -> Folder:
    """A folder with a file of some 100 KiB in a directory."""
    folder = services.create(make_user(), "data", root)
    write(folder, "sub/file", 100_000)
    return folder


@pytest.fixture
def files(folder: Folder) -> Iterator[FolderFiles]:
    """The files of the folder."""
    with storage.files_of(folder) as files:
        yield files


def write(folder: Folder, path: str, length: int) -> None:
    """Write a file as a session does."""
    target = Path(storage.root_directory(folder.root).files_path(folder.holder_number, folder.pk), path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(os.urandom(length))


class Helper:
    """Stands in for root on the host: notes what it is asked for."""

    def __init__(self) -> None:
        self.purged: list[tuple[int, str]] = []
        self.measured: list[tuple[int, str]] = []

    def purge(self, holder: int, folder: str) -> bool:
        self.purged.append((holder, folder))
        return len(self.purged) == 2

    def usage(self, holder: int, folder: str, most: int | None) -> Usage:
        self.measured.append((holder, folder))
        return Usage(2**20, 7)


def measure_all(root: StorageRoot) -> int:
    """Measure what is due, without the pause between measurements of one folder."""
    Folder.objects.update(measure_pause=timedelta())
    return measure.measure_due(root, threading.Event())


def used(folder: Folder) -> tuple[int, int]:
    """Return bytes and files as stored."""
    folder.refresh_from_db()
    return folder.used_bytes, folder.used_files


def test_a_new_folder_is_measured_once(root: StorageRoot, folder: Folder) -> None:
    assert measure_all(root) == 1
    size, count = used(folder)
    assert count == 2
    assert 100_000 <= size < 130_000  # allocated blocks of a file and a directory
    write(folder, "sub/more", 100_000)
    assert measure_all(root) == 0
    record_growth(folder, add_bytes=1)
    assert measure_all(root) == 1
    assert used(folder)[1] == 3


def test_holes_and_second_links_take_no_space(root: StorageRoot, folder: Folder) -> None:
    path = Path(storage.root_directory(root).files_path(folder.holder_number, folder.pk))
    with open(path / "sparse", "wb") as sparse:
        sparse.truncate(2**40)
    os.link(path / "sub" / "file", path / "again")
    measure_all(root)
    size, count = used(folder)
    assert count == 3
    assert size < 130_000


def test_a_folder_that_a_session_writes_is_measured_often(root: StorageRoot, folder: Folder) -> None:
    measure_all(root)
    Folder.objects.update(measured_at=timezone.now() - HOUR)
    assert measure_all(root) == 0
    session = run_session(make_session(owner=folder.owner))
    mount = Mount.objects.create(session=session, folder=folder, folder_name="data", path="/data/x", is_read_only=True)
    assert measure_all(root) == 0
    Mount.objects.filter(pk=mount.pk).update(is_read_only=False)
    assert measure_all(root) == 1
    assert measure_all(root) == 0
    Folder.objects.update(measured_at=timezone.now() - HOUR)
    services_of_sessions.end(session, Reason.USER_REQUEST, "")
    session.refresh_from_db()
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    assert measure_all(root) == 0


def test_a_long_measurement_is_followed_by_a_long_pause(root: StorageRoot, folder: Folder) -> None:
    measure_all(root)
    record_growth(folder, add_bytes=1)
    Folder.objects.update(measure_pause=HOUR)
    assert measure.measure_due(root, threading.Event()) == 0


def test_a_claim_excludes_other_hosts_until_it_lapses(root: StorageRoot, folder: Folder) -> None:
    stale = Folder.objects.get()
    assert measure._claim(folder)
    assert not measure._claim(stale)
    record_growth(folder, add_bytes=1)
    assert measure_all(root) == 0
    Folder.objects.update(measuring_since=timezone.now() - measure.CLAIM - HOUR)
    assert measure_all(root) == 1
    measure._record(folder, Usage(7, 7), HOUR)  # of the host that had lost its claim
    assert used(folder)[1] == 2


def test_growth_during_a_measurement_has_it_measured_again(root: StorageRoot, folder: Folder) -> None:
    assert measure._claim(folder)
    record_growth(folder, add_bytes=1)
    measure._record(folder, Usage(7, 7), timedelta())
    assert used(folder) == (7, 7)
    assert measure_all(root) == 1


def test_the_pause_after_a_long_measurement_is_bounded(folder: Folder) -> None:
    measure._record(folder, Usage(7, 7), timedelta(days=2))
    folder.refresh_from_db()
    assert folder.measure_pause == timedelta(days=30), "the longest that a host may write"


def test_the_end_of_the_worker_gives_a_measurement_up(
    root: StorageRoot, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1100):
        write(folder, f"many/{number}", 0)
    stopped = threading.Event()
    begin = measure._claim

    def claim_and_stop(folder: Folder) -> bool:
        stopped.set()
        return begin(folder)

    monkeypatch.setattr(measure, "_claim", claim_and_stop)
    assert measure.measure_due(root, stopped) == 0
    monkeypatch.undo()
    folder.refresh_from_db()
    assert (folder.measured_at, folder.measuring_since) == (None, None)
    assert measure_all(root) == 1


def test_a_missing_root_leaves_its_folders_unmeasured(root: StorageRoot, folder: Folder) -> None:
    (Path(root.path) / ".gpuplatform-root").unlink()
    assert measure_all(root) == 0
    folder.refresh_from_db()
    assert folder.measured_at is None
    assert folder.measuring_since is None


def test_old_trash_and_drafts_are_removed_and_young_stay(
    root: StorageRoot, folder: Folder, files: FolderFiles, settings: Settings
) -> None:
    settings.COMPUTE_TRASH_DAYS = 30
    now = timezone.now()
    for name, age in (("old", 31), ("young", 29)):
        write(folder, name, 10)
        files.trash.put(name, now - timedelta(days=age))
        os.close(files.staging.open(f"text-{name}", create=True))
    staging = Path(storage.root_directory(root).folder_path(folder.holder_number, folder.pk), "uploads")
    os.utime(staging / "text-old", (0, 0))
    for _ in range(2):
        measure_all(root)
        record_growth(folder)
    assert [item.path for item in files.trash.items()] == ["young"]
    assert files.staging.names() == ["text-young"]
    assert not any((staging.parent / "trash" / "expunged").iterdir())


def test_a_folder_is_measured_although_root_must_clear_its_trash(
    root: StorageRoot, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(trash: FolderTrash) -> bool:
        raise StorageAccessError("The platform has no permission for this.")

    helper = Helper()
    monkeypatch.setattr(FolderTrash, "purge", refuse)
    write(folder, "file", 10)
    record_growth(folder)
    assert measure.measure_due(root, threading.Event(), as_root=helper) == 1
    assert helper.purged == [(folder.holder_number, folder.pk)] * 2


def test_trash_filled_as_it_is_emptied_delays_no_measurement(
    root: StorageRoot, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    purged: list[object] = []
    monkeypatch.setattr(FolderTrash, "purge", lambda trash: purged.append(trash))
    record_growth(folder)
    assert measure_all(root) == 1
    assert len(purged) == REMOVAL_ROUNDS
    monkeypatch.setattr(RootDirectory, "purge", lambda *arguments: purged.append(arguments))
    sweeps.sweep(root)
    assert len(purged) == REMOVAL_ROUNDS * 2


def test_measures_what_it_may_where_root_fails(
    root: StorageRoot, folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Helper):
        def usage(self, holder: int, folder: str, most: int | None) -> Usage:
            raise OSError("the helper has ended")

    record_growth(folder)
    monkeypatch.setattr(FolderFiles, "usage", lambda *_: Usage(4096, 1, is_partial=True))
    assert measure.measure_due(root, threading.Event(), as_root=Failing()) == 1
    assert used(folder) == (4096, 1)
    assert "root of the host cannot help: the helper has ended" in caplog.text


def test_root_measures_what_the_platform_may_not_see(
    root: StorageRoot, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = Helper()
    record_growth(folder)
    monkeypatch.setattr(FolderFiles, "usage", lambda *_: Usage(4096, 1, is_partial=True))
    assert measure.measure_due(root, threading.Event(), as_root=helper) == 1
    assert used(folder) == (2**20, 7)
    assert helper.measured == [(folder.holder_number, folder.pk)]


def test_folders_are_deleted_once_they_expire_in_the_trash(
    root: StorageRoot, folder: Folder, settings: Settings
) -> None:
    path = Path(storage.root_directory(root).folder_path(folder.holder_number, folder.pk))
    services.trash(folder)
    Folder.objects.update(trashed_at=timezone.now() - timedelta(days=31))
    settings.COMPUTE_TRASH_DAYS = 0
    assert sweeps.delete_expired() == 0
    settings.COMPUTE_TRASH_DAYS = 30
    assert sweeps.delete_expired() == 1
    assert path.exists(), "until a host that has the root removes it"
    for _ in range(2):
        sweeps.sweep(root)
    assert not path.exists()
    assert not Folder.objects.exists()


def test_trash_is_kept_where_a_clock_is_ahead(
    root: StorageRoot, folder: Folder, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.COMPUTE_TRASH_DAYS = 30
    write(folder, "mine", 10)
    with storage.files_of(folder) as files:
        files.trash.put("mine", timezone.now())
    other = services.create(make_user(), "other", root)
    services.trash(other)
    ahead = timezone.now() + timedelta(days=31)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    measure_all(root)
    assert sweeps.delete_expired() == 0
    with storage.files_of(folder) as files:
        assert [item.path for item in files.trash.items()] == ["mine"]


def test_a_removal_that_was_begun_elsewhere_is_finished(root: StorageRoot, folder: Folder) -> None:
    Folder.objects.update(trashed_at=timezone.now(), deleting_at=timezone.now())
    storage.root_directory(root).expunge(folder.holder_number, folder.pk)
    sweeps.sweep(root)
    assert not Folder.objects.exists()
    assert not [path for path in Path(root.path).rglob("*") if path.is_file() and path.name != ".gpuplatform-root"]


def test_a_surge_has_what_sessions_write_measured_at_once(root: StorageRoot, folder: Folder) -> None:
    session = run_session(owner=folder.owner)
    Mount.objects.create(session=session, folder=folder, folder_name="data", path="/data")
    idle = services.create(make_user(), "idle", root)
    measure_all(root)
    write(folder, "more", 10)
    Folder.objects.update(measured_at=timezone.now() - timedelta(seconds=60), measure_pause=timedelta(hours=1))
    assert measure.measure_due(root, threading.Event()) == 0
    assert measure.measure_due(root, threading.Event(), is_urgent=True) == 0  # measured for half of the time at most
    Folder.objects.update(measure_pause=timedelta(minutes=10))
    assert measure.measure_due(root, threading.Event(), is_urgent=True) == 1
    assert (used(folder)[1], used(idle)[1]) == (3, 0)


@pytest.mark.parametrize("made", [50, 200])
def test_a_walk_ends_far_beyond_the_files_allowed(root: StorageRoot, made: int) -> None:
    folder = services.create(make_user(policy=make_policy(storage_files=10)), "data", root)
    for number in range(made):
        write(folder, f"sub/{number}", 0)
    measure_all(root)
    assert used(folder)[1] == 21
