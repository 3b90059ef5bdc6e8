"""Archives: unpacked within bounds, below one directory, and without what is neither file, directory nor inner link."""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

from imports.fetcher.checkout import drop_outward_links
from imports.fetcher.job import FetchError, FetchJob

MAX_RATIO: Final = 200  # of what is unpacked to what was fetched
FREE_BYTES: Final = 100 * 2**20  # that may be unpacked from however little
MAX_PARTS: Final = 60
MAX_PATH_BYTES: Final = 1000
BLOCK: Final = 256 * 1024
BROKEN: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError),
    *(OSError, ValueError),
)


@dataclass
class _Target:
    """Where an archive is unpacked, and what was unpacked so far."""

    tree: Path
    job: FetchJob
    most: int
    size: int = 0
    files: int = 0
    links: list[tuple[Path, str]] = field(default_factory=list)

    def place(self, name: str) -> Path | None:
        """Return where an entry goes, None where it goes nowhere. Raises FetchError for too many."""
        self.files += 1
        self.job.check_size(0, self.files)
        parts = PurePosixPath(name).parts
        is_bad = not parts or name.startswith("/") or "\\" in name or len(parts) > MAX_PARTS
        if is_bad or any(part in ("..", ".git") or not part.isprintable() for part in parts):
            self.job.note("Entries with paths out of the archive, or that are none, were left out.")
            return None
        if len(name.encode(errors="replace")) > MAX_PATH_BYTES:
            raise FetchError("The archive has longer paths than are written.")
        return self.tree.joinpath(*parts)

    def write(self, path: Path, source: IO[bytes], *, is_executable: bool) -> None:
        """Write a file. Raises FetchError once all files together are too large."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise FetchError("The archive has a file and a directory of one name.")
        path.unlink(missing_ok=True)
        with path.open("xb") as file:
            while block := source.read(BLOCK):
                self.count(len(block))
                file.write(block)
        path.chmod(0o755 if is_executable else 0o644)
        self.job.show(f"Unpacks {self.files} files", self.size)

    def count(self, size: int) -> None:
        """Count bytes that are unpacked. Raises FetchError once they are too many."""
        self.size += size
        if self.size > self.most:
            raise FetchError("The archive unpacks to far more than it is: that is not done.")

    def link(self, path: Path, to: str) -> None:
        """Make a symbolic link, unless something is there, or another link leads to where it would be."""
        top = os.path.realpath(self.tree)
        if os.path.realpath(path.parent) != os.path.join(top, *path.parent.relative_to(self.tree).parts):
            self.job.note("Links below other links were left out.")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            os.symlink(to, path)


def unpack(archive: Path, tree: Path, job: FetchJob) -> None:
    """Unpack an archive into a new directory. Raises FetchError."""
    tree.mkdir()
    most = min(job.max_bytes, max(FREE_BYTES, archive.stat().st_size * MAX_RATIO))
    target = _Target(tree, job, most)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, target)
        else:
            _unpack_tar(archive, target)
        for path, link in target.links:
            target.link(path, link)
        lifted = _lift_only_directory(tree)
        links = [os.path.relpath(path, lifted) for path, _ in target.links]
        drop_outward_links(tree, links, job)  # after the move: a level up is out of the tree by now
    except BROKEN as error:
        raise FetchError(f"The archive cannot be unpacked: {str(error)[:150] or type(error).__name__}.") from error


def _unpack_zip(archive: Path, target: _Target) -> None:
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            path, mode = target.place(entry.filename), entry.external_attr >> 16
            if path is None:
                continue
            if entry.is_dir():
                path.mkdir(parents=True, exist_ok=True)
            elif mode & 0o170000 == 0o120000:
                if entry.file_size <= MAX_PATH_BYTES:
                    target.links.append((path, opened.read(entry).decode(errors="replace")))
            elif mode & 0o170000 in (0, 0o100000):
                with opened.open(entry) as source:
                    target.write(path, source, is_executable=bool(mode & 0o100))
            else:
                target.job.note("Devices and the like were left out.")


def _unpack_tar(archive: Path, target: _Target) -> None:
    with tarfile.open(archive, "r:*") as opened:
        for entry in _entries(opened):
            path = target.place(entry.name)
            source = opened.extractfile(entry) if path and entry.isreg() else None
            if source is None:
                target.count(max(0, entry.size))  # what is left out is read all the same
            if path is None:
                continue
            if entry.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif entry.issym():
                target.links.append((path, entry.linkname))
            elif entry.islnk():
                _copy_linked(target, path, entry)
            elif source is not None:
                with source:
                    target.write(path, source, is_executable=bool(entry.mode & 0o100))
            else:
                target.job.note("Devices and the like were left out.")


def _entries(opened: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries without keeping them in memory."""
    while entry := opened.next():
        yield entry
        opened.members = []  # type: ignore[attr-defined]


def _copy_linked(target: _Target, path: Path, entry: tarfile.TarInfo) -> None:
    """Write a hard link as a copy of the file that came before it."""
    before = target.place(entry.linkname)
    if before is None or before.is_symlink() or not before.is_file():
        target.job.note("Links that lead out of the tree were left out.")
        return
    with before.open("rb") as source:
        target.write(path, source, is_executable=os.access(before, os.X_OK))


def _lift_only_directory(tree: Path) -> Path:
    """Have the contents of the only directory in the tree's place, as archives of repositories have one.

    Return where they were.
    """
    entries = list(tree.iterdir())
    if len(entries) != 1 or entries[0].is_symlink() or not entries[0].is_dir():
        return tree
    [only] = entries
    aside = tree.with_name(f"{tree.name}.only")
    os.rename(only, aside)
    shutil.rmtree(tree)
    os.rename(aside, tree)
    return only
