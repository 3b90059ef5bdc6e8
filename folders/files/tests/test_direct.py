"""Plain operations on files in place, as SFTP has them, and names and entries as they are told."""

import errno
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from folders.files import direct
from folders.files.descriptors import translated
from folders.files.entries import EntryKind, entry_from, kind_of
from folders.files.errors import (
    EntryExistsError,
    EntryKindError,
    EntryNotFoundError,
    FileTooLargeError,
    InvalidPathError,
    NotTextError,
    StorageAccessError,
)
from folders.files.folder_files import MAX_TEXT_BYTES, FolderFiles
from folders.files.partial import PartialFile, PartialFileBusyError, numbered, publish_beside
from folders.files.paths import display, is_addressable, parts_of
from folders.files.tests.hostile import World, content


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.create(tmp_path)


@pytest.fixture
def files(world: World) -> Iterator[FolderFiles]:
    content("d/file", "old")(world)
    (world.files / "link").symlink_to("d/file")
    with world.open() as opened:
        yield opened


def put(files: FolderFiles, path: str, flags: int, data: bytes, mode: int = 0o644) -> None:
    opened = files.direct.open(path, os.O_WRONLY | flags, mode=mode)
    try:
        os.write(opened, data)
    finally:
        os.close(opened)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (0, "new d"),
        (os.O_APPEND, "old datanew"),
        (os.O_TRUNC, "new"),
        (os.O_CREAT, "new d"),
        (os.O_CREAT | os.O_TRUNC, "new"),
        (os.O_CREAT | os.O_APPEND, "old datanew"),
    ],
)
def test_an_existing_file_is_written_in_place(world: World, files: FolderFiles, flags: int, expected: str) -> None:
    path = world.files / "d" / "file"
    path.write_text("old data")
    path.chmod(0o600)
    put(files, "d/file", flags, b"new")
    assert path.read_text() == (expected if flags & (os.O_TRUNC | os.O_APPEND) else "new data")
    assert path.stat().st_mode & 0o7777 == 0o600
    put(files, "d/file", flags, b"")
    assert bool(path.read_text()) is not bool(flags & os.O_TRUNC)
    with pytest.raises(EntryExistsError):
        files.direct.open("d/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL)


@pytest.mark.parametrize("flags", [os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_APPEND])
def test_a_new_file_has_no_more_than_plain_permissions(world: World, files: FolderFiles, flags: int) -> None:
    with pytest.raises(EntryNotFoundError):
        files.direct.open("d/new", os.O_WRONLY)
    put(files, "d/new", flags, b"x", mode=0o6757)
    status = (world.files / "d" / "new").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1000, 1000, 0o757)
    with pytest.raises(EntryNotFoundError):
        files.direct.open("none/new", os.O_WRONLY | flags)
    with pytest.raises(InvalidPathError):
        files.direct.open("d/a\nb", os.O_WRONLY | flags)


def test_entries_are_scanned_and_told_as_they_are(
    world: World, files: FolderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dict(files.direct.scan(""))
    assert {name: kind_of(status.st_mode) for name, status in found.items()} == {
        "d": EntryKind.DIRECTORY,
        "link": EntryKind.SYMLINK,
    }
    assert stat.S_ISDIR(files.direct.status("").st_mode)
    assert files.direct.status("d/file").st_size == 3
    (world.files / "d" / "inner").symlink_to("nowhere")
    assert [files.direct.read_link(path) for path in ("link", "d/inner")] == ["d/file", "nowhere"]
    with pytest.raises(EntryKindError, match="not a symbolic link: d"):
        files.direct.read_link("d")
    monkeypatch.setattr(direct, "MAX_SCANNED", 1)
    assert len(files.direct.scan("")) == 1


def test_only_the_right_kind_is_removed(world: World, files: FolderFiles) -> None:
    with pytest.raises(EntryKindError, match="This is a directory: d"):
        files.direct.remove("d")
    with pytest.raises(EntryExistsError, match="with something in it"):
        files.direct.remove_directory("d")
    with pytest.raises(EntryKindError):
        files.direct.remove_directory("link")
    files.direct.remove("link")
    files.direct.remove("d/file")
    files.mkdir("d/e")
    files.direct.remove_directory("d/e")
    files.direct.remove_directory("d")
    assert os.listdir(world.files) == []


def test_permissions_and_times_are_set_apart(world: World, files: FolderFiles) -> None:
    path = world.files / "d" / "file"
    before = path.stat()
    files.direct.change("d/file", mode=0o4711)
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime_ns) == (0o711, before.st_mtime_ns)
    files.direct.change("d/file", times_ns=(1, 2))
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime_ns) == (0o711, 2)
    files.direct.change("d", mode=0o700)
    files.direct.change("", mode=0o750)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, world.files)] == [0o700, 0o750]
    with pytest.raises(EntryKindError, match="neither a file nor a directory"):
        files.direct.change("link", mode=0o777)


def test_each_kind_is_refused_by_its_name(world: World, files: FolderFiles) -> None:
    os.mkfifo(world.files / "pipe")
    for path, words in (("d", "This is a directory"), ("link", "symbolic link"), ("pipe", "no regular file but a")):
        with pytest.raises(EntryKindError, match=words):
            files.direct.open(path)
    with pytest.raises(StorageAccessError, match="The storage failed"), translated("path"):
        raise OSError
    with pytest.raises(StorageAccessError, match="no permission for this: the folder"), translated(""):
        raise PermissionError(errno.EPERM, "no")


@pytest.mark.parametrize(("name", "is_so"), [("a", True), ("\ud7ff", True), ("\ud800", False), ("\ue000", True)])
def test_only_unicode_names_can_be_addressed(name: str, is_so: bool) -> None:
    assert is_addressable(name) is is_so
    assert not is_addressable("a\udfff")  # the last that stands for a byte


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("", ()),
        ("a/b", ("a", "b")),
        ("n" * 255, ("n" * 255,)),
        ("n" * 256, None),
        ("/".join(["n" * 240] * 17), ("n" * 240,) * 17),  # 4096 bytes
        ("/".join(["n" * 240] * 17) + "n", None),
    ],
)
def test_paths_and_names_have_their_longest(path: str, parts: tuple[str, ...] | None) -> None:
    if parts is None:
        with pytest.raises(InvalidPathError, match="longer than"):
            parts_of(path)
    else:
        assert parts_of(path) == parts


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("a.txt", 0, "a.txt"),
        ("a.txt", 2, "a (2).txt"),
        ("a", 10, "a (10)"),
        (".hidden", 1, ".hidden (1)"),
        ("a" * 255, 1, "a" * 251 + " (1)"),
        ("é" * 125 + ".txt", 1, "é" * 123 + " (1).txt"),
        ("a." + "x" * 251, 1, "a (1)." + "x" * 250),
        ("a." + "x" * 253, 1, "a." + "x" * 249 + " (1)"),
    ],
)
def test_numbered_names_keep_their_extension_and_fit(name: str, number: int, expected: str) -> None:
    found = numbered(name, number)
    assert len(os.fsencode(found)) <= 255
    assert found == expected or (number and found.endswith(f" ({number})"))
    if len(os.fsencode(name)) < 250:
        assert found == expected


def test_a_file_is_published_beside_those_of_its_name(files: FolderFiles) -> None:
    published = []
    for number in range(3):
        os.close(files.staging.open(f"draft-{number}", create=True))
        published.append(publish_beside(files.staging, f"draft-{number}", "d/file").name)
    assert published == ["file (1)", "file (2)", "file (3)"]


def test_a_partial_file_has_one_writer(files: FolderFiles) -> None:
    os.close(files.staging.open("draft", create=True))
    partial = PartialFile(files.staging, "draft")
    with pytest.raises(PartialFileBusyError):
        PartialFile(files.staging, "draft")
    partial.append(b"0123456789")
    partial.cut(4)
    partial.append(b"x")
    partial.write_back()
    partial.sync()
    assert partial.size == 5
    partial.close()
    partial.close()
    for act in (lambda: partial.append(b"x"), lambda: partial.cut(0), partial.write_back, partial.sync):
        with pytest.raises(ValueError, match="closed"):
            act()
    again = PartialFile(files.staging, "draft")
    assert again.size == 5
    again.close()


def test_text_is_read_and_saved_up_to_its_longest(world: World, files: FolderFiles) -> None:
    longest = "x" * MAX_TEXT_BYTES
    saved = files.write_text("text", longest, if_match=None)
    assert files.read_text("text") == saved
    assert len(saved.etag) == 34
    with pytest.raises(FileTooLargeError):
        files.write_text("text", longest + "x", if_match="*")
    with open(world.files / "text", "a") as file:
        file.write("x")
    with pytest.raises(FileTooLargeError, match="1 MiB can be edited: text"):
        files.read_text("text")
    for data in (b"\xff", b"a\0b"):
        (world.files / "text").write_bytes(data)
        with pytest.raises(NotTextError):
            files.read_text("text")
    with pytest.raises(NotTextError):
        files.write_text("text", "\ud800", if_match="*")


def test_an_entry_tells_kind_length_time_and_tag(world: World) -> None:
    content("file", "12345")(world)
    os.utime(world.files / "file", (7, 7))
    entry = entry_from("file", os.stat(world.files / "file"))
    assert (entry.kind, entry.length_bytes, entry.modified_at) == (EntryKind.FILE, 5, datetime.fromtimestamp(7, UTC))
    assert (entry.is_addressable, entry.display_name) == (True, "file")
    os.utime(world.files / "file", (7, 8))
    assert entry_from("file", os.stat(world.files / "file")).etag != entry.etag
    directory = entry_from("a\udcff", os.stat(world.files))
    assert (directory.kind, directory.length_bytes) == (EntryKind.DIRECTORY, 0)
    assert (directory.is_addressable, directory.display_name) == (False, "a\ufffd")
    assert display("a\n\u2028\udcffb") == "a\ufffd\ufffd\ufffdb"
    os.mkfifo(world.files / "pipe")
    os.utime(world.files / "pipe", (-5, -5))
    pipe = entry_from("pipe", os.stat(world.files / "pipe"))
    assert (pipe.kind, pipe.length_bytes, pipe.modified_at) == (EntryKind.OTHER, 0, datetime.fromtimestamp(0, UTC))
