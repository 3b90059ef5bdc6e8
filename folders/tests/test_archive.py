"""Zip archives of hostile and changing directories."""

import io
import os
import stat
import subprocess
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from folders.files.downloads import archive as archives
from folders.files.downloads.archive import (
    NOTE_NAME,
    FolderArchive,
    TooManyEntriesError,
    require_archivable,
    safe_name,
)
from folders.files.errors import EntryNotFoundError
from folders.files.folder_files import FolderFiles, make_layout


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FolderFiles]:
    """The files of an empty folder at tmp_path."""
    opened = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    make_layout(opened)
    with FolderFiles(opened) as made:
        yield made


def zipped(files: FolderFiles, *selected: str) -> zipfile.ZipFile:
    """Return the archive, tested."""
    archive = zipfile.ZipFile(io.BytesIO(b"".join(FolderArchive(files, selected or [""]).chunks())))
    assert archive.testzip() is None
    return archive


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("plain.txt", "plain.txt"),
        ("größe 한글.txt", "größe 한글.txt"),
        (r"..\..\evil.exe", ".._.._evil.exe"),
        ("C:evil", "C_evil"),
        ("new\nline\r\x1b[31m", "new_line__[31m"),
        ("\udcff\udcfe", "__"),
        ("aux", "_aux"),
        ("NUL.txt", "_NUL.txt"),
        ("console", "console"),
        ("trailing.", "trailing_"),
        ("trailing ", "trailing_"),
        ('<>:"|?*', "_______"),
        ("\u2028", "_"),
    ],
)
def test_names_are_safe_to_unpack_anywhere(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_hostile_names_unpack_below_the_target(files: FolderFiles, tmp_path: Path) -> None:
    names = [b"..\\x", b".. ", b"a\nb", b"\xff", b"\xfe", b"...", b"C:", b"A", b"a", b"_", b"con", b"x" * 255]
    for directory in (b".", b"sub"):
        os.makedirs(os.path.join(os.fsencode(tmp_path / "files"), directory), exist_ok=True)
        for name in names:
            path = os.path.join(os.fsencode(tmp_path / "files"), directory, name)
            Path(os.fsdecode(path)).write_bytes(name)
    archive = zipped(files)
    assert len({name.casefold() for name in archive.namelist()}) == 2 * len(names) + 1
    assert sorted(map(archive.read, archive.namelist())) == sorted([b"", *names, *names])
    target = tmp_path / "unpacked"
    archive.extractall(target)
    unpacked = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(tmp_path / "files")]
    assert len(unpacked) == 2 * len(names)
    assert all(path.is_relative_to(target) for path in unpacked)


def test_links_and_devices_are_listed_not_followed(files: FolderFiles, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "files/link").symlink_to(tmp_path / "secret")
    (tmp_path / "files/up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "files/pipe")
    (tmp_path / "files" / NOTE_NAME).write_text("own")
    archive = zipped(files)
    assert len(archive.namelist()) == 2
    note = archive.read(NOTE_NAME).decode()
    assert all(f"\n{name}: " in note for name in ("link", "up", "pipe"))
    assert "secret" not in note


def test_directory_may_change_while_it_is_sent(files: FolderFiles, tmp_path: Path) -> None:
    root = tmp_path / "files"
    for number in range(40):
        (root / f"d{number}").mkdir()
        (root / f"d{number}/file").write_bytes(bytes(200_000))
    data = []
    for count, chunk in enumerate(FolderArchive(files, [""]).chunks()):
        data.append(chunk)
        for number in range(40):
            file = root / f"d{number}/file"
            match (number + count) % 4:
                case 0:
                    file.unlink(missing_ok=True)
                case 1:
                    file.write_bytes(bytes(300_000))
                case 2:
                    file.write_bytes(b"short")
                case 3:
                    subprocess.run(["rm", "-rf", file.parent], check=True)
                    file.parent.symlink_to("/etc")
                    file.parent.unlink()
                    file.parent.mkdir()
    archive = zipfile.ZipFile(io.BytesIO(b"".join(data)))
    assert archive.testzip() is None
    assert {archive.getinfo(name).file_size for name in archive.namelist()} <= {0, 5, 200_000, 300_000}


def test_file_that_grows_is_as_long_as_it_was(files: FolderFiles, tmp_path: Path) -> None:
    log = tmp_path / "files/log"
    log.write_bytes(bytes(3_000_000))
    data = []
    for chunk in FolderArchive(files, [""]).chunks():
        data.append(chunk)
        with log.open("ab") as file:
            file.write(b"x" * 2_000_000)
    with zipfile.ZipFile(io.BytesIO(b"".join(data))) as archive:
        assert archive.read("log") == bytes(3_000_000)


def test_chunks_are_small(files: FolderFiles, tmp_path: Path) -> None:
    with (tmp_path / "files/big").open("wb") as file:
        file.truncate(50_000_000)
    sizes = [len(chunk) for chunk in FolderArchive(files, ["big"]).chunks()]
    assert sum(sizes) > 50_000_000
    assert max(sizes) < 3 * archives.CHUNK_BYTES


def test_too_many_entries_are_refused_before(
    files: FolderFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", 5)
    for number in range(5):
        (tmp_path / f"files/{number}").touch()
    require_archivable(files, ["0", "1"])
    with pytest.raises(TooManyEntriesError):
        require_archivable(files, [""])


def test_too_long_paths_are_refused_before(files: FolderFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_PATHS_BYTES", 1000)
    for number in range(5):
        (tmp_path / f"files/{number}{'x' * 200}").touch()
    require_archivable(files, [f"{number}{'x' * 200}" for number in range(4)])
    with pytest.raises(TooManyEntriesError):
        require_archivable(files, [""])


def test_a_tree_deeper_than_any_path_is_cut(files: FolderFiles, tmp_path: Path) -> None:
    name, depth = "d" * 99, 60
    opened = os.open(tmp_path / "files", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=opened)
        below = os.open(name, os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = below
    os.close(opened)
    archive = zipped(files)
    assert archive.namelist() == [*("/".join([name] * each) + "/" for each in range(1, 41)), NOTE_NAME]
    assert "The path is too long" in archive.read(NOTE_NAME).decode()


def test_names_with_numbers_are_found_free(files: FolderFiles, tmp_path: Path) -> None:
    for name in ("a?", "A*", "a_ (2)", "a:", "a_ (4)", "a|"):
        (tmp_path / f"files/{name}").write_text(name)
    archive = zipped(files)
    names = [name.casefold() for name in archive.namelist()]
    assert len(set(names)) == 6
    assert all(name.startswith("a_") for name in names)
    assert sorted(map(archive.read, archive.namelist())) == sorted([b"a?", b"A*", b"a_ (2)", b"a:", b"a_ (4)", b"a|"])


def test_same_names_from_two_directories_differ(files: FolderFiles, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"files/{name}/same").mkdir(parents=True)
        (tmp_path / f"files/{name}/same/file").write_text(name)
    archive = zipped(files, "a/same", "b/same")
    assert archive.namelist() == ["same/", "same/file", "same (2)/", "same (2)/file"]
    assert [archive.read(name) for name in archive.namelist()] == [b"", b"a", b"", b"b"]


@pytest.mark.parametrize(
    ("modified", "stored"),
    [
        ((1960, 5, 4, 3, 2, 1), (1980, 1, 1, 0, 0, 0)),
        ((1979, 12, 31, 23, 59, 59), (1980, 1, 1, 0, 0, 0)),
        ((1980, 1, 2, 3, 4, 6), (1980, 1, 2, 3, 4, 6)),
        ((2107, 12, 31, 1, 2, 4), (2107, 12, 31, 1, 2, 4)),
        ((2108, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)),
        ((2300, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_times_are_the_nearest_that_an_archive_can_have(
    files: FolderFiles, tmp_path: Path, modified: tuple[int, int, int, int, int, int], stored: tuple[int, ...]
) -> None:
    (tmp_path / "files/file").touch(mode=0o640)
    seconds = time.mktime((*modified, 0, 0, -1))
    os.utime(tmp_path / "files/file", (seconds, seconds))
    (info,) = zipped(files).infolist()
    assert (info.date_time, info.external_attr >> 16) == (stored, stat.S_IFREG | 0o640)


def test_directories_are_marked_as_such(files: FolderFiles) -> None:
    files.mkdir("d")
    (info,) = zipped(files, "d").infolist()
    assert (info.is_dir(), info.external_attr) == (True, (stat.S_IFDIR | 0o755) << 16 | 0x10)


def test_notes_end_where_they_are_too_many(files: FolderFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_NOTES", 2)
    for name in "abcd":
        (tmp_path / "files" / name).symlink_to("/")
    head, *notes = zipped(files).read(NOTE_NAME).decode().splitlines()
    assert head == "These could not be read:"
    assert (len(notes), notes[-1]) == (3, "... and more")


def test_selected_entries_count_with_what_is_below(files: FolderFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("d/e", "f"):
        files.mkdir(path, parents=True)
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    assert len(zipped(files, "d", "f").namelist()) == 3
    require_archivable(files, ["d", "f"])
    monkeypatch.setattr(archives, "MAX_ENTRIES", 2)
    with pytest.raises(TooManyEntriesError):
        zipped(files, "d", "f")
    with pytest.raises(TooManyEntriesError):
        require_archivable(files, ["d", "f"])
    with pytest.raises(EntryNotFoundError):
        require_archivable(files, ["gone"])
