"""Hostile paths and hostile contents of a folder: whatever is tried, nothing outside is read or written."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest

from folders.files.errors import (
    EntryKindError,
    EntryNotFoundError,
    FilesError,
    InvalidPathError,
    StorageAccessError,
)
from folders.files.folder_files import FolderFiles
from folders.files.paths import MAX_NAME_BYTES, MAX_PATH_BYTES
from folders.files.tests.hostile import (
    SECRET,
    Plant,
    World,
    both,
    content,
    deep,
    hard_link,
    link,
    node,
    nothing,
)

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
FULL_NAME: Final = "n" * MAX_NAME_BYTES
LONG_NAME: Final = "n" * 200


class Case(NamedTuple):
    """What a session has made, the path that somebody then asks for, and what comes of reading it.

    Where the platform followed it, it reaches the world's secret: no file of this machine is at stake.
    """

    title: str
    plant: Plant
    path: str
    error: type[FilesError] | None  # None: it is the folder's own file, and is read


CASES: Final = (
    # --- paths that lead out by themselves
    Case("dot dot", nothing, "..", InvalidPathError),
    Case("dot dot to a file", nothing, "../secret", InvalidPathError),
    Case("dot dot behind a directory", content("a/b"), "a/../../../../outside/secret", InvalidPathError),
    Case("dot dot that stays inside", content("a/b"), "a/../a/b", InvalidPathError),
    Case("dot dot at the end", content("a/b"), "a/..", InvalidPathError),
    Case("absolute", nothing, "/{outside}/secret", InvalidPathError),
    Case("absolute twice", nothing, "//{outside}/secret", InvalidPathError),
    Case("dot", nothing, ".", InvalidPathError),
    Case("dot in front", content("a"), "./a", InvalidPathError),
    Case("empty name", content("a/b"), "a//b", InvalidPathError),
    Case("slash at the end", content("a"), "a/", InvalidPathError),
    Case("no name at all", nothing, "", InvalidPathError),
    Case("NUL cuts the path short", content("a"), "a\0/../../secret", InvalidPathError),
    Case("name of 256 bytes", nothing, "n" * 256, InvalidPathError),
    Case("name of 256 bytes in 128 characters", nothing, "é" * 128, InvalidPathError),
    Case("path of more than 4096 bytes", nothing, "/".join(["n" * 200] * 21), InvalidPathError),
    Case("lone surrogate", nothing, "\ud800", InvalidPathError),
    # --- paths that only look as if they led out: names like any other
    Case("dot dot, percent-encoded", nothing, "%2e%2e/secret", EntryNotFoundError),
    Case("dot dot with backslashes", nothing, "..\\secret", EntryNotFoundError),
    Case("dot dot of full-width stops", nothing, "\uff0e\uff0e/secret", EntryNotFoundError),
    Case("dot dot of one dot leaders", nothing, "\u2024\u2024/secret", EntryNotFoundError),
    Case("dot dot and a line break", nothing, "..\n/secret", EntryNotFoundError),
    Case("slash in overlong UTF-8", nothing, "..\udcc0\udcafsecret", EntryNotFoundError),
    Case("home directory", nothing, "~root/secret", EntryNotFoundError),
    Case("the folder's own trash", nothing, "trash/info", EntryNotFoundError),
    Case("the root's marker", nothing, ".gpuplatform-root", EntryNotFoundError),
    Case("other case", content("Name"), "nAME", EntryNotFoundError),
    Case("composed for decomposed", content("e\u0301"), "\u00e9", EntryNotFoundError),
    # --- symbolic links in each position
    Case("link to a file", link("link", "{outside}/secret"), "link", EntryKindError),
    Case("relative link to a file", link("link", "../../../../outside/secret"), "link", EntryKindError),
    Case("link to a file of another user", link("link", "{other}/secret"), "link", EntryKindError),
    Case("link to a directory", link("link", "{outside}"), "link", EntryKindError),
    Case("link in the middle", link("link", "{outside}"), "link/secret", EntryKindError),
    Case("link in the middle, deeper", both(content("a/b"), link("a/link", "{outside}")), "a/link/d/x", EntryKindError),
    Case("link to the parent", link("link", ".."), "link/trash/info", EntryKindError),
    Case("link to the file system's root", link("link", "/"), "link/{outside}/secret", EntryKindError),
    Case("link to the process' root", link("link", "/proc/self/root"), "link/{outside}/secret", EntryKindError),
    Case("link to the process' directory", link("link", "/proc/self/cwd"), "link/secret", EntryKindError),
    Case("link to an open descriptor", link("link", "/proc/self/fd/0"), "link", EntryKindError),
    Case("link to a link", both(link("one", "{outside}"), link("two", "one")), "two/secret", EntryKindError),
    Case("link to itself", link("link", "link"), "link", EntryKindError),
    Case("link to a file of the folder", both(content("a"), link("link", "a")), "link", EntryKindError),
    Case("dangling link", link("link", "{outside}/new"), "link", EntryKindError),
    Case("link to a device", link("link", "/dev/zero"), "link", EntryKindError),
    Case(
        "link named like a directory above", both(content("a/b"), link("a/..x", "{outside}")), "a/..x", EntryKindError
    ),
    # --- what is no file
    Case("character device", node("dev", stat.S_IFCHR), "dev", EntryKindError),
    Case("block device", node("dev", stat.S_IFBLK, (7, 0)), "dev", EntryKindError),
    Case("FIFO without a writer", node("pipe", stat.S_IFIFO), "pipe", EntryKindError),
    Case("socket", node("socket", stat.S_IFSOCK), "socket", EntryKindError),
    Case("directory", content("a/b"), "a", EntryKindError),
    Case("file in the middle", content("a"), "a/b", EntryKindError),
    Case("FIFO in the middle", node("pipe", stat.S_IFIFO), "pipe/b", EntryKindError),
    Case("deeper than a path can be", deep(25, LONG_NAME), "/".join([LONG_NAME] * 20), EntryKindError),
    # --- hostile names of the folder's own files, which are read as they are
    Case("name with line breaks", content("a\nb\r\n"), "a\nb\r\n", None),
    Case("name with an escape sequence", content("\x1b[2J"), "\x1b[2J", None),
    Case("name that is an option", content("-rf"), "-rf", None),
    Case("name with shell syntax", content("$(id);`id`"), "$(id);`id`", None),
    Case("name with markup", content("<img src=x onerror=alert(1)>"), "<img src=x onerror=alert(1)>", None),
    Case("name read from right to left", content("a\u202egpj.exe"), "a\u202egpj.exe", None),
    Case("name of spaces", content(" "), " ", None),
    Case("name of three dots", content("..."), "...", None),
    Case("name that is not UTF-8", content(b"a\xff"), "a\udcff", None),
    Case("name of 255 bytes", content(FULL_NAME), FULL_NAME, None),
    Case("name like a trash information file", content("x\nPath=%2e%2e"), "x\nPath=%2e%2e", None),
    Case("name like an upload's", content("text-0000"), "text-0000", None),
)


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: thousands of files are written here."""
    monkeypatch.setattr(os, "fsync", lambda opened: None)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world in memory: thousands of folders are made here, which on a disk take three times the processor time."""
    with TemporaryDirectory(dir="/dev/shm") as base:
        world = World.create(Path(base))
        monkeypatch.chdir(world.outside)
        yield world
        world.remove()


@pytest.fixture
def files(world: World) -> Iterator[FolderFiles]:
    with world.open() as opened:
        yield opened


def read(files: FolderFiles, path: str) -> str:
    with open(files.open_file(path)) as file:
        return file.read(1000)


def put_and_restore(files: FolderFiles, path: str) -> None:
    item = files.trash.put(path, NOW)
    assert [(each.id, each.path) for each in files.trash.items()] == [(item.id, path)]
    files.trash.restore(item.id)


def publish(files: FolderFiles, path: str, replace: bool = False) -> None:
    os.close(files.staging.open("draft", create=True))
    try:
        files.staging.publish("draft", path, replace=replace)
    finally:
        files.staging.remove("draft")


def restore_to(files: FolderFiles, path: str) -> None:
    files.write_text("own", "mine", if_match=None)
    files.trash.restore(files.trash.put("own", NOW).id, path)


def move_to(files: FolderFiles, path: str) -> None:
    files.write_text("own", "mine", if_match=None)
    files.move("own", path, replace=True)


def read_directly(files: FolderFiles, path: str) -> str:
    with open(files.direct.open(path)) as file:
        return file.read(1000)


def write_directly(files: FolderFiles, path: str) -> None:
    opened = files.direct.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(opened, b"new")
    os.close(opened)


OPERATIONS: Final[dict[str, Callable[[FolderFiles, str], Any]]] = {
    "list": lambda files, path: [entry.name for entry in files.list(path).entries],
    "stat": lambda files, path: files.stat(path),
    "read": read,
    "read text": lambda files, path: files.read_text(path).text,
    "walk": lambda files, path: [entry.path for entry in files.walk(path)],
    "walk below": lambda files, path: [entry.path for entry in files.walk(f"{path}/d")],
    "save text": lambda files, path: files.write_text(path, "new", if_match="*"),
    "save new text": lambda files, path: files.write_text(path, "new", if_match=None),
    "save new text below": lambda files, path: files.write_text(f"{path}/new", "new", if_match=None),
    "make a directory": lambda files, path: files.mkdir(path),
    "make a directory below": lambda files, path: files.mkdir(f"{path}/new"),
    "make directories": lambda files, path: files.mkdir(f"{path}/new/new", parents=True),
    "rename": lambda files, path: files.move(path, "new"),
    "move there": move_to,
    "move below": lambda files, path: move_to(files, f"{path}/new"),
    "trash and restore": put_and_restore,
    "restore there": restore_to,
    "restore below": lambda files, path: restore_to(files, f"{path}/d/new"),
    "publish": publish,
    "publish over it": lambda files, path: publish(files, path, replace=True),
    "status, directly": lambda files, path: files.direct.status(path),
    "scan, directly": lambda files, path: [name for name, _ in files.direct.scan(path)],
    "read, directly": read_directly,
    "write, directly": write_directly,
    "write below, directly": lambda files, path: write_directly(files, f"{path}/new"),
    "read the link": lambda files, path: files.direct.read_link(path),
    "change": lambda files, path: files.direct.change(path, mode=0o777, times_ns=(0, 0)),
    "change below": lambda files, path: files.direct.change(f"{path}/d", mode=0o777, times_ns=(0, 0)),
    "remove": lambda files, path: files.direct.remove(path),
    "remove below": lambda files, path: files.direct.remove(f"{path}/secret"),
    "remove a directory": lambda files, path: files.direct.remove_directory(path),
    "remove a directory below": lambda files, path: files.direct.remove_directory(f"{path}/d"),
    "publish below": lambda files, path: publish(files, f"{path}/new"),
}


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_reading_gives_the_folders_own_or_an_error(case: Case, world: World, files: FolderFiles) -> None:
    case.plant(world)
    path = world.asked(case.path)
    if case.error is None:
        assert read(files, path) == "mine"
        put_and_restore(files, path)
        assert read(files, path) == "mine"
    else:
        with pytest.raises(case.error) as refusal:
            read(files, path)
        assert "\0" not in str(refusal.value)
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_no_operation_reaches_what_is_outside(case: Case, world: World) -> None:
    before = world.fingerprint()
    for number, (name, operation) in enumerate(OPERATIONS.items()):
        attacked = world.fresh(number)
        case.plant(attacked)
        with attacked.open() as files, suppress(FilesError):
            assert SECRET not in repr(operation(files, world.asked(case.path))), name
        assert world.fingerprint() == before, name


def test_every_descriptor_is_closed_whatever_fails(world: World) -> None:
    for case in CASES:
        with suppress(OSError):
            case.plant(world)
    before = len(os.listdir("/proc/self/fd"))
    for case in CASES:
        for operation in OPERATIONS.values():
            with world.open() as files, suppress(FilesError):
                operation(files, world.asked(case.path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_hard_link_is_never_written_through(world: World, files: FolderFiles) -> None:
    hard_link("linked")(world)
    files.write_text("linked", "mine", if_match="*")
    hard_link("second")(world)
    publish(files, "second", replace=True)
    hard_link("third")(world)
    files.trash.put("third", NOW)
    files.trash.empty()
    assert files.trash.purge()
    secret = world.outside / "secret"
    assert (secret.read_text(), secret.stat().st_nlink, secret.stat().st_uid) == (SECRET, 1, os.geteuid())


def test_a_replaced_file_loses_its_special_rights(world: World, files: FolderFiles) -> None:
    program = world.files / "program"
    program.write_text("old")
    program.chmod(0o6755)
    files.write_text("program", "new", if_match="*")
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def test_a_tampered_trash_restores_nothing_outside(world: World, files: FolderFiles) -> None:
    files.write_text("own", "mine", if_match=None)
    item = files.trash.put("own", NOW)
    info = Path(world.root.folder_path(1, "a" * 16), "trash", "info", f"{item.id}.trashinfo")
    original = info.read_text()
    before = world.fingerprint()
    for path in ("../../../../outside/new", "/tmp/new", "%2e%2e/new", "own%00", ""):
        info.write_text(original.replace("Path=own", f"Path={path}"))
        assert [each.path for each in files.trash.items()] == [item.id]
        assert files.trash.restore(item.id).name == item.id
        files.move(item.id, "own")
        item = files.trash.put("own", NOW)
        info = info.with_name(f"{item.id}.trashinfo")
    for name in ("../own", "", "x" * 32, "..", item.id.upper() + "/"):
        with pytest.raises(EntryNotFoundError):
            files.trash.restore(name)
    assert world.fingerprint() == before


@pytest.mark.parametrize("name", ["../files/own", "", ".", "..", "a/b", "a\0", ".hidden", "n" * 200])
def test_uploads_have_names_of_the_platform_only(files: FolderFiles, name: str) -> None:
    for operation in (files.staging.open, files.staging.length_bytes, files.staging.remove):
        with pytest.raises(InvalidPathError):
            operation(name)
    with pytest.raises(InvalidPathError):
        files.staging.publish(name, "own")


def test_nothing_is_made_with_control_characters(files: FolderFiles) -> None:
    files.mkdir("d")
    for name in ("a\nb", "\x1b[2J", "\x7f", "a\u2028b", "a\udcff"):
        for make in (FolderFiles.mkdir, publish):
            with pytest.raises(InvalidPathError, match="control characters"):
                make(files, name)
        with pytest.raises(InvalidPathError, match="control characters"):
            files.move("d", name)
    assert files.mkdir("Grüße 👩‍🔬 \u202e").is_addressable


def test_a_folder_without_permissions_is_no_way_out(world: World, files: FolderFiles) -> None:
    content("closed/own")(world)
    (world.files / "closed").chmod(0)
    with suppress(StorageAccessError):  # unless this process is root
        assert read(files, "closed/own") == "mine"
    files.trash.put("closed", NOW)
    files.trash.empty()
    assert files.trash.purge()


def test_long_paths_are_measured_in_bytes(files: FolderFiles) -> None:
    longest = "/".join(["n" * 240] * 17)
    assert len(longest) == MAX_PATH_BYTES
    files.mkdir(longest, parents=True)
    assert files.stat(longest).name == "n" * 240
    assert files.trash.put(longest, NOW).path == longest
    assert files.trash.items()[0].path == longest
