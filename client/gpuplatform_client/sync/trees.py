"""Directories of this machine and over SFTP, as trees whose symbolic links are never followed."""

import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from gpuplatform_client.errors import ClientError
from gpuplatform_client.sync.filters import IGNORE_FILE, PathFilter
from gpuplatform_client.sync.sftp import IN_FLIGHT, PIECE_BYTES, SftpClient
from gpuplatform_client.sync.sftp_packets import SftpError, SftpStatus

MAX_IGNORE_BYTES: Final = 2**20  # of a .gitignore that is read
MAX_TIME: Final = 2**32 - 1  # seconds since 1970 that SFTP can carry
UNSURE_BYTES: Final = IN_FLIGHT * PIECE_BYTES  # at the end of a part, which may have holes
PART: Final = re.compile(r"\.gpuplatform-[0-9a-f]{24}\.part")


class NodeKind(StrEnum):
    """What an entry of a tree is."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"  # a link or a device, which is not copied


@dataclass(frozen=True, slots=True)
class TreeNode:
    """An entry of a tree; `mtime` in seconds."""

    kind: NodeKind
    size: int
    mtime: int
    mode: int


@dataclass(slots=True)
class Scan:
    """The entries of a tree by their paths, and what else is there."""

    entries: dict[str, TreeNode] = field(default_factory=dict)
    occupied: set[str] = field(default_factory=set)  # directories with something that is left out
    parts: set[str] = field(default_factory=set)  # of files that were not copied whole


class Tree(Protocol):
    """A directory and what is below it. Paths are relative; nothing is reached through a symbolic link."""

    def listing(self, path: str) -> Iterable[tuple[str, TreeNode]]:
        """Return names and entries of a directory. Raises OSError or ClientError where it cannot be read."""

    def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
        """Yield a file in pieces of at most PIECE_BYTES."""

    def append(self, path: str, pieces: Iterable[bytes], offset: int, entry: TreeNode) -> None:
        """Write a file from an offset on, and set its permissions and time."""

    def replace(self, part: str, path: str) -> None:
        """Move a part to its place."""

    def exists(self) -> bool:
        """Return whether the directory itself is there."""

    def make_root(self) -> None:
        """Make the directory itself where it is missing."""

    def make_directory(self, path: str) -> None:
        """Make a directory."""

    def remove(self, path: str) -> None:
        """Remove what is no directory."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""


class LocalTree:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()  # what was named may be a link; nothing below it is

    def listing(self, path: str) -> Iterator[tuple[str, TreeNode]]:
        try:
            entries = list(os.scandir(self._root / path))
        except FileNotFoundError:
            if not path:
                raise
            return  # it has vanished since its parent was read
        for each in entries:
            with suppress(FileNotFoundError):
                found = each.stat(follow_symlinks=False)
                yield each.name, _entry(found.st_mode, found.st_size, int(found.st_mtime))

    def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
        with open(os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            file.seek(offset)
            while piece := file.read(PIECE_BYTES):
                yield piece

    def append(self, path: str, pieces: Iterable[bytes], offset: int, entry: TreeNode) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (0 if offset else os.O_TRUNC)
        with open(os.open(self._root / path, flags, 0o600), "wb") as file:
            file.seek(offset)
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fchmod(file.fileno(), entry.mode)
            os.utime(file.fileno(), (entry.mtime, entry.mtime))

    def replace(self, part: str, path: str) -> None:
        os.replace(self._root / part, self._root / path)

    def exists(self) -> bool:
        return self._root.exists()

    def make_root(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)

    def make_directory(self, path: str) -> None:
        (self._root / path).mkdir()

    def remove(self, path: str) -> None:
        (self._root / path).unlink()

    def remove_directory(self, path: str) -> None:
        (self._root / path).rmdir()


class SftpTree:
    """A directory of a session or a data folder."""

    def __init__(self, client: SftpClient, root: str) -> None:
        self._client = client
        try:
            self._root = client.real_path(root or ".")
        except SftpError:  # as where more than its last part is missing
            self._root = posixpath.join(client.real_path("."), posixpath.normpath(root))

    def listing(self, path: str) -> Iterator[tuple[str, TreeNode]]:
        for name, found in self._client.entries(self._path(path)):
            yield name, _entry_of(found)

    def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
        return self._client.read(self._path(path), offset)

    def append(self, path: str, pieces: Iterable[bytes], offset: int, entry: TreeNode) -> None:
        self._client.write(self._path(path), pieces, offset, entry.mode, entry.mtime)

    def replace(self, part: str, path: str) -> None:
        self._client.replace(self._path(part), self._path(path))

    def exists(self) -> bool:
        return self._client.status(self._root) is not None

    def make_root(self) -> None:
        missing, path = [], self._root
        while (found := self._client.status(path)) is None:
            missing.append(path)
            path = posixpath.dirname(path)
        if not found.is_directory:
            raise ClientError(f"{path} is no directory.")
        for each in reversed(missing):
            self._client.make_directory(each)

    def make_directory(self, path: str) -> None:
        self._client.make_directory(self._path(path))

    def remove(self, path: str) -> None:
        self._client.remove(self._path(path))

    def remove_directory(self, path: str) -> None:
        self._client.remove_directory(self._path(path))

    def _path(self, path: str) -> str:
        return posixpath.join(self._root, path) if path else self._root


def scan(tree: Tree, left_out: PathFilter, *, learns: bool) -> Scan:
    """Return what is in a tree; `learns` says whether its .gitignore files count. Raises OSError or ClientError."""
    found, waiting = Scan(), [""]
    while waiting:
        directory = waiting.pop()
        names = dict(tree.listing(directory))
        ignore_file = posixpath.join(directory, IGNORE_FILE)
        if learns and left_out.by_gitignore and IGNORE_FILE in names and names[IGNORE_FILE].kind == NodeKind.FILE:
            left_out.learn(directory, _text_of(tree, ignore_file))
        for name, entry in names.items():
            path = posixpath.join(directory, name)
            if PART.fullmatch(name):
                found.parts.add(path)
            elif left_out.matches(path, is_directory=entry.kind == NodeKind.DIRECTORY):
                found.occupied.update(parents_of(path))
            else:
                found.entries[path] = entry
                if entry.kind == NodeKind.DIRECTORY:
                    waiting.append(path)
    return found


def parents_of(path: str) -> Iterator[str]:
    """Yield the directories that a path is in."""
    while path := posixpath.dirname(path):
        yield path


def part_of(path: str, entry: TreeNode) -> str:
    """Return where a file is written until it is whole: equal for an equal file, so that it can be resumed."""
    directory, name = posixpath.split(path)
    about = f"{entry.size} {entry.mtime} {name}".encode(errors="surrogateescape")
    return posixpath.join(directory, f".gpuplatform-{hashlib.sha256(about).hexdigest()[:24]}.part")


def digest(pieces: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of a file."""
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
    return hashed.digest()


def _text_of(tree: Tree, path: str) -> str:
    data = b""
    for piece in tree.read(path):
        data += piece
        if len(data) > MAX_IGNORE_BYTES:
            raise ClientError(f"{path} is too large.")
    return data.decode(errors="replace")


def _entry_of(found: SftpStatus) -> TreeNode:
    return _entry(found.mode, found.size, found.mtime)


def _entry(mode: int, size: int, mtime: int) -> TreeNode:
    kinds = {stat.S_IFREG: NodeKind.FILE, stat.S_IFDIR: NodeKind.DIRECTORY}
    kind = kinds.get(stat.S_IFMT(mode), NodeKind.OTHER)
    return TreeNode(kind, size, min(max(mtime, 0), MAX_TIME), mode & 0o777)
