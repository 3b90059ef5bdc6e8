"""What the operations on the files of a folder do, and what they leave when something fails."""

import ctypes
import errno
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from folders.files import descriptors, folder_files, trash, walk
from folders.files.entries import EntryKind, Order
from folders.files.errors import (
    EntryExistsError,
    EntryKindError,
    EntryNotFoundError,
    InvalidPathError,
    StorageAccessError,
    StorageFullError,
)
from folders.files.folder_files import FolderFiles
from folders.files.tests.hostile import FOLDER, World, content
from folders.files.walk import Usage
from tests.wait import until

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.create(tmp_path)


@pytest.fixture
def files(world: World) -> Iterator[FolderFiles]:
    with world.open() as opened:
        yield opened


def write(files: FolderFiles, path: str, text: str = "mine") -> None:
    files.write_text(path, text, if_match=None)


def names(files: FolderFiles, path: str = "") -> list[str]:
    return [entry.name for entry in files.list(path).entries]


def test_listing_sorts_before_it_cuts(world: World, files: FolderFiles) -> None:
    for number, name in enumerate(("b", "C", "a")):
        write(files, name, "x" * number)
        os.utime(world.files / name, (number, number))
    files.mkdir("z")
    assert names(files) == ["z", "a", "b", "C"]
    assert [entry.name for entry in files.list(offset=1, limit=2).entries] == ["a", "b"]
    assert [entry.name for entry in files.list(order=Order.SIZE, descending=True).entries] == ["z", "a", "C", "b"]
    assert [entry.name for entry in files.list(order=Order.MODIFIED).entries] == ["z", "b", "C", "a"]


def test_a_huge_directory_is_listed_in_part(files: FolderFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_files, "MAX_LISTED", 2)
    for name in "abc":
        write(files, name)
    listing = files.list()
    assert (len(listing.entries), listing.total, listing.is_complete) == (2, 2, False)


def test_times_beyond_any_calendar_are_shown(world: World, files: FolderFiles) -> None:
    write(files, "a")
    for seconds in (-(2**31), 2**34):
        os.utime(world.files / "a", (seconds, seconds))
        assert files.stat("a").modified_at.tzinfo == UTC


def test_moving_replaces_only_on_request(files: FolderFiles) -> None:
    write(files, "a", "one")
    write(files, "b", "two")
    files.mkdir("d")
    with pytest.raises(EntryExistsError, match="b"):
        files.move("a", "b")
    files.move("a", "b", replace=True)
    assert files.read_text("b").text == "one"
    for replace in (True, False):
        with pytest.raises((EntryKindError, EntryExistsError)):
            files.move("b", "d", replace=replace)
    with pytest.raises(InvalidPathError, match="into itself"):
        files.move("d", "d/e")
    with pytest.raises(EntryNotFoundError, match="gone"):
        files.move("gone", "x")
    assert names(files) == ["d", "b"]


def test_a_link_is_moved_and_trashed_as_itself(world: World, files: FolderFiles) -> None:
    (world.files / "link").symlink_to("/nowhere")
    files.move("link", "other")
    item = files.trash.put("other", NOW)
    assert item.entry.kind == EntryKind.SYMLINK
    files.trash.restore(item.id)
    assert os.readlink(world.files / "other") == "/nowhere"


def test_without_renameat2_nothing_is_replaced(files: FolderFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        """A C library on a file system such as NFS, which has no RENAME_NOREPLACE."""

        def renameat2(self, *arguments: object) -> int:
            ctypes.set_errno(errno.EINVAL)
            return -1

    monkeypatch.setattr(descriptors, "_libc", Libc())
    write(files, "a", "one")
    write(files, "b", "two")
    files.mkdir("d")
    files.mkdir("e/f", parents=True)
    for source, target in (("a", "b"), ("d", "e"), ("d", "a")):
        with pytest.raises((EntryExistsError, EntryKindError)):
            files.move(source, target)
    files.move("a", "c")
    files.move("e", "g")
    assert names(files) == ["d", "g", "b", "c"]
    assert files.read_text("c").text == "one"


def test_mkdir_makes_what_is_missing(world: World, files: FolderFiles) -> None:
    assert files.mkdir("a/b/c", parents=True).name == "c"
    assert files.mkdir("a/b/c", parents=True).kind == EntryKind.DIRECTORY
    status = (world.files / "a" / "b").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1000, 1000, 0o755)
    with pytest.raises(EntryExistsError):
        files.mkdir("a")
    write(files, "file")
    with pytest.raises(EntryKindError):
        files.mkdir("file/x", parents=True)


def test_files_belong_to_the_containers_user(world: World, files: FolderFiles) -> None:
    write(files, "a")
    status = (world.files / "a").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1000, 1000, 0o644)
    (world.files / "a").chmod(0o755)
    files.write_text("a", "new", if_match="*")
    assert (world.files / "a").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFullError), (errno.EIO, StorageAccessError)])
def test_a_save_that_fails_changes_nothing(
    files: FolderFiles, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def fail(opened: int) -> None:
        raise OSError(number, os.strerror(number))

    write(files, "a", "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(error):
            files.write_text("a", "new", if_match="*")
        with pytest.raises(error):
            write(files, "b")
    assert names(files) == ["a"]
    assert files.read_text("a").text == "old"
    assert files.staging.names() == []


def test_a_file_without_rights_of_its_own_is_published_whole(files: FolderFiles) -> None:
    with open(files.staging.open("upload-1", create=True), "wb") as file:
        file.write(b"first ")
    with open(files.staging.open("upload-1"), "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"second")
    assert files.staging.length_bytes("upload-1") == 12
    with pytest.raises(EntryNotFoundError):
        files.staging.publish("upload-1", "no/such/directory")
    files.mkdir("d")
    for path in ("d",):
        with pytest.raises(EntryKindError):
            files.staging.publish("upload-1", path, replace=True)
    assert files.staging.publish("upload-1", "d/file").length_bytes == 12
    assert files.staging.names() == []


def test_usage_counts_hard_links_and_holes_once(world: World, files: FolderFiles) -> None:
    write(files, "a", "x" * 10_000)
    before = files.usage()
    os.link(world.files / "a", world.files / "b")
    with open(world.files / "sparse", "wb") as file:
        file.truncate(2**40)
    assert files.usage() == Usage(before.bytes, before.files + 1)
    files.trash.put("a", NOW)
    assert files.usage().files == before.files + 2  # the links are in two places now
    files.trash.empty()
    assert files.trash.purge()
    assert files.trash.freed == Usage()  # the other link has the space


def test_usage_is_what_is_allocated(world: World, files: FolderFiles) -> None:
    for number in range(3):
        write(files, f"file-{number}", "x" * 5000 * number)
    files.mkdir("d/e", parents=True)
    files.trash.put("file-2", NOW)
    trashed = Path(world.root.folder_path(1, FOLDER), "trash", "files")
    found = [path.lstat().st_blocks * 512 for start in (world.files, trashed) for path in start.rglob("*")]
    assert files.usage() == Usage(sum(found), len(found))


def test_saves_of_the_platform_wait_for_each_other(world: World, files: FolderFiles) -> None:
    lock = os.open(Path(world.root.folder_path(1, FOLDER), folder_files.LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    waiting = f":{os.fstat(lock).st_ino} "
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        saving = threading.Thread(target=write, args=(files, "a"))
        saving.start()
        until(lambda: not saving.is_alive() or any("->" in each and waiting in each for each in kernel_locks()))
        assert names(files) == []
    finally:
        os.close(lock)
    saving.join()
    assert names(files) == ["a"]


def kernel_locks() -> list[str]:
    return Path("/proc/locks").read_text().splitlines()


def test_what_cannot_be_trashed_leaves_no_information(
    world: World, files: FolderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    write(files, "a")
    monkeypatch.setattr(trash, "rename_to_free_name", fail)
    with pytest.raises(StorageAccessError):
        files.trash.put("a", NOW)
    assert list(Path(world.root.folder_path(1, FOLDER), "trash", "info").iterdir()) == []


def test_a_measurement_may_be_given_up_now_and_then(files: FolderFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "CHECKPOINT_ENTRIES", 2)
    for name in "abcde":
        write(files, name)
    checks: list[int] = []
    files.usage(lambda: checks.append(1))
    assert len(checks) == 2


@pytest.mark.parametrize(("most", "found"), [(None, 6), (7, 6), (3, 3), (1, 1)])
def test_a_walk_with_an_end_counts_no_more(files: FolderFiles, most: int | None, found: int) -> None:
    for name in "abcdef":
        write(files, name)
    assert files.usage(most=most).files == found


def test_names_beyond_measure_end_a_walk_with_an_end(
    world: World, files: FolderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "CHECKPOINT_ENTRIES", 1)
    visited: list[int] = []
    write(files, "a")
    for number in range(20):
        os.link(world.files / "a", world.files / f"link-{number}")
    assert files.usage(lambda: visited.append(1), most=3).files == 1
    assert len(visited) == walk.LINKS_WALKED * 3 + 1


def test_trash_keeps_dates_and_makes_parents_again(files: FolderFiles) -> None:
    files.mkdir("a/b", parents=True)
    write(files, "a/b/c")
    first = files.trash.put("a/b/c", NOW)
    second = files.trash.put("a", NOW + timedelta(days=1))
    assert [(item.path, item.deleted_at) for item in files.trash.items()] == [
        ("a", NOW + timedelta(days=1)),
        ("a/b/c", NOW),
    ]
    files.trash.restore(first.id)
    assert names(files, "a/b") == ["c"]
    with pytest.raises(EntryExistsError):
        files.trash.restore(second.id)
    with pytest.raises(InvalidPathError, match="control characters"):
        files.trash.restore(second.id, "elsewhere/a\nb")
    assert files.trash.restore(second.id, "elsewhere/a").kind == EntryKind.DIRECTORY
    assert files.trash.items() == []


def test_only_what_is_old_enough_is_expunged(world: World, files: FolderFiles) -> None:
    for number, name in enumerate("abc"):
        write(files, name)
        files.trash.put(name, NOW + timedelta(days=number))
    stray = Path(world.root.folder_path(1, FOLDER), "trash", "info", f"{'0' * 32}.trashinfo")
    stray.touch()
    assert files.trash.empty(NOW + timedelta(days=1)) == 1
    assert not stray.exists()
    assert [item.path for item in files.trash.items()] == ["c", "b"]
    assert files.trash.purge()
    assert files.trash.freed.files == 1


def test_deleting_works_on_a_full_disk(files: FolderFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise StorageFullError("The storage is full.")

    write(files, "a")
    with monkeypatch.context() as patch:
        patch.setattr("folders.files.trash._write_info", full)
        item = files.trash.put("a", NOW)
    assert [each.path for each in files.trash.items()] == [item.id]
    assert files.trash.empty() == 1


def test_a_folder_that_was_removed_is_reported(world: World, files: FolderFiles) -> None:
    content("a")(world)
    world.root.expunge(1, FOLDER)
    world.root.expunge(1, FOLDER)
    assert world.root.purge(100)
    with pytest.raises(EntryNotFoundError):
        files.list("a")
    with pytest.raises(EntryNotFoundError):
        world.open()


def test_a_lease_of_a_session_holds_up_nobody(world: World, files: FolderFiles) -> None:
    write(files, "a")
    with open(world.files / "a", "rb+") as held:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        previous = signal.signal(signal.SIGIO, signal.SIG_IGN)  # which tells the holder that somebody waits
        try:
            with pytest.raises(StorageAccessError, match="keeps the file"):
                files.open_file("a")
        finally:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            signal.signal(signal.SIGIO, previous)
    assert files.read_text("a").text == "mine"
