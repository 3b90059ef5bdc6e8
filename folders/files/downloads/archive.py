"""A zip archive of files and directories as a stream of bytes, little of which is in memory at any time.

Files are stored, not compressed: most of what fills data folders is compressed already, and deflate would be slower
than the network. Sizes follow each file's bytes (data descriptors), in ZIP64's form: APPNOTE.TXT 4.3.9 and 4.5.3.
"""

import os
import re
import stat
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, cast

from folders.files.descriptors import translated
from folders.files.entries import EntryKind
from folders.files.errors import EntryNotFoundError, FilesError
from folders.files.folder_files import FolderFiles
from folders.files.paths import MAX_PATH_BYTES, Parts, display, parts_of
from folders.files.walk import WalkEntry

MAX_ENTRIES: Final = 100_000  # each takes about a kilobyte of memory until the archive ends
MAX_PATHS_BYTES: Final = 32 * 2**20  # of all paths together, which take three times as much until then
CHUNK_BYTES: Final = 2**20
NOTE_NAME: Final = "NOT INCLUDED.txt"
MAX_NOTES: Final = 1000
_DIRECTORY_FLAG: Final = 0x10  # of MS-DOS
_YEARS: Final = range(1980, 2108)  # of the times in an archive
_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\\ufffd]')  # on any system that unpacks the archive
_DEVICE: Final = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")  # names of devices on Windows


class TooManyEntriesError(FilesError):
    """There are more entries than one archive may have."""


def safe_name(name: str) -> str:
    """Return the name of a file or directory in a form that every program unpacks as one name and nothing else."""
    shown = _UNSAFE.sub("_", display(name))
    if shown.endswith((".", " ")):
        shown = f"{shown[:-1]}_"
    return f"_{shown}" if _DEVICE.match(shown) else shown


def require_archivable(files: FolderFiles, selected: Sequence[str]) -> None:
    """Raise TooManyEntriesError if there would be too many, EntryNotFoundError if a selected one is missing."""
    size = _ArchiveSize(len(selected))
    for path in selected:
        if files.stat(path).kind == EntryKind.DIRECTORY:
            for entry in files.walk(path):
                size.add(entry)


class _ArchiveSize:
    """Counts entries, and the bytes of their paths."""

    def __init__(self, entries: int = 0) -> None:
        self._entries = entries
        self._paths_bytes = 0

    def add(self, entry: WalkEntry | None = None) -> None:
        """Add an entry of a directory, or a selected one. Raises TooManyEntriesError."""
        self._entries += 1
        self._paths_bytes += entry.path_bytes if entry else 0
        if self._entries > MAX_ENTRIES:
            raise TooManyEntriesError(
                f"An archive can have {MAX_ENTRIES:,} files and directories. Download fewer, or use SFTP."
            )
        if self._paths_bytes > MAX_PATHS_BYTES:
            raise TooManyEntriesError(
                "The paths of so many files and directories are too long for one archive. Download fewer, or use SFTP."
            )


class _Names:
    """Gives entries their paths in the archive, no two the same, not even where upper and lower case are one.

    Expects the entries of a directory one after another, but for the selected ones.
    """

    def __init__(self) -> None:
        self._directories: dict[Parts, str] = {(): ""}
        self._selected = _UniqueNames(NOTE_NAME)
        self._current = ("", _UniqueNames())  # a directory of the archive, and names in it

    def add(self, parts: Parts, *, is_directory: bool) -> str:
        """Return the path in the archive of the entry at `parts`."""
        above = self._directories[parts[:-1]]
        if above and above != self._current[0]:
            self._current = (above, _UniqueNames())
        name = (self._current[1] if above else self._selected).add(safe_name(parts[-1]))
        path = above + name + ("/" if is_directory else "")
        if is_directory:
            self._directories[parts] = path
        return path


class _UniqueNames:
    """Names in a directory of the archive; upper and lower case are one."""

    def __init__(self, *taken: str) -> None:
        self._numbers = {name.casefold(): 1 for name in taken}  # the last with which each was given

    def add(self, wanted: str) -> str:
        """Return the name, with the first number that is free where it is taken."""
        name, key = wanted, wanted.casefold()
        while name.casefold() in self._numbers:
            self._numbers[key] += 1
            name = f"{wanted} ({self._numbers[key]})"
        self._numbers[name.casefold()] = 1
        return name


class _Sink:
    """What zipfile writes to: a file that can neither be read nor sought in, emptied by `take`."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> int:
        """Keep the data."""
        self._written.append(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing; zipfile calls it."""

    def take(self) -> bytes:
        """Return what was written since the last call."""
        data = b"".join(self._written)
        self._written.clear()
        self.size = 0
        return data


class FolderArchive:
    """An archive of entries of a folder, each by its last name.

    What is neither a regular file nor a directory, or cannot be read, is listed in a text at the end of the archive.
    What is removed meanwhile may be missing. Of a file that grows, the archive has what it was when its turn came.
    """

    def __init__(self, files: FolderFiles, selected: Sequence[str]) -> None:
        """`selected` are paths of files and directories; "" stands for all that is in the folder."""
        self._files = files
        self._selected = selected
        self._sink = _Sink()
        self._names = _Names()
        self._notes: list[str] = []
        self._size = _ArchiveSize()

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the archive, about CHUNK_BYTES at a time. Raises FilesError if the archive cannot be completed."""
        with zipfile.ZipFile(cast(str, self._sink), "w", zipfile.ZIP_STORED) as archive:
            for path in self._selected:
                yield from self._tree(archive, path)
            if self._notes:
                text = "These could not be read:\n" + "".join(f"{note}\n" for note in self._notes)
                archive.writestr(NOTE_NAME, text)
        yield self._sink.take()

    def _tree(self, archive: zipfile.ZipFile, path: str) -> Iterator[bytes]:
        """Add a selected entry, and what is below it."""
        top = parts_of(path)[-1:]
        is_directory = self._files.stat(path).kind == EntryKind.DIRECTORY
        if top:
            self._size.add()
            opener = None if is_directory else lambda: self._files.open_file(path)
            yield from self._entry(archive, top, opener)
        if is_directory:
            for entry in self._files.walk(path):
                self._size.add(entry)
                if entry.path_bytes > MAX_PATH_BYTES:
                    self._leave_out(f"{entry.path[:1000]}...", "The path is too long for an archive.")
                    continue
                opener = None if stat.S_ISDIR(entry.status.st_mode) else entry.open
                yield from self._entry(archive, (*top, *entry.path.split("/")), opener)

    def _entry(self, archive: zipfile.ZipFile, parts: Parts, opener: Callable[[], int] | None) -> Iterator[bytes]:
        """Add a file, or a directory if there is no opener."""
        name = self._names.add(parts, is_directory=opener is None)
        if opener is None:
            info = zipfile.ZipInfo(name, time.localtime()[:6])
            info.external_attr = (stat.S_IFDIR | 0o755) << 16 | _DIRECTORY_FLAG
            info.CRC = 0
            archive.mkdir(info)
        else:
            yield from self._file(archive, name, opener)
        if self._sink.size >= CHUNK_BYTES:
            yield self._sink.take()

    def _file(self, archive: zipfile.ZipFile, name: str, opener: Callable[[], int]) -> Iterator[bytes]:
        """Add the bytes of a file, at most as many as it has now."""
        try:
            opened = opener()
        except EntryNotFoundError:
            return  # removed meanwhile
        except FilesError as error:
            self._leave_out(name, str(error))
            return
        try:
            status = os.fstat(opened)
            info = zipfile.ZipInfo(name, _time_of(status))
            info.external_attr = (stat.S_IFREG | status.st_mode & 0o777) << 16
            left = status.st_size
            with archive.open(info, "w", force_zip64=True) as member, translated(name):
                while left and (data := os.read(opened, min(left, CHUNK_BYTES))):
                    left -= len(data)
                    member.write(data)
                    if self._sink.size >= CHUNK_BYTES:
                        yield self._sink.take()
        finally:
            os.close(opened)

    def _leave_out(self, path: str, reason: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes.append(f"{path}: {reason}")
        elif len(self._notes) == MAX_NOTES:
            self._notes.append("... and more")


def _time_of(status: os.stat_result) -> tuple[int, int, int, int, int, int]:
    """Return the time of the last change, or the nearest that an archive can have."""
    local = time.localtime(status.st_mtime)[:6]
    if local[0] in _YEARS:
        return local
    return (_YEARS[0], 1, 1, 0, 0, 0) if local[0] < _YEARS[0] else (_YEARS[-1], 12, 31, 23, 59, 58)
