"""A folder of which a hostile session is the master, beside what it must not reach."""

import hashlib
import os
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from folders.files.folder_files import FolderFiles
from folders.files.layout import RootDirectory
from folders.files.walk import Removal

SECRET: Final = "the secret of somebody else"
FOLDER: Final = "a" * 16
OTHER: Final = "b" * 16


@dataclass(frozen=True, slots=True)
class World:
    """A storage root with the folder under attack; a secret in another folder, and one outside the root."""

    base: Path
    root: RootDirectory
    folder: str = FOLDER

    @classmethod
    def create(cls, base: Path) -> "World":
        """Return the world below an empty directory."""
        root = RootDirectory(str(base / "root"), uuid.uuid4())
        root.prepare()
        for owner, folder in ((1, FOLDER), (2, OTHER)):
            root.create(owner, folder)
        world = cls(base, root)
        world.outside.mkdir()
        for directory in (world.outside, Path(root.files_path(2, OTHER))):
            (directory / "secret").write_text(SECRET)
            (directory / "d").mkdir()
        return world

    def remove(self) -> None:
        """Remove everything: pytest cannot remove directories that are too deep."""
        area = os.open(self.base, os.O_PATH | os.O_DIRECTORY)
        try:
            Removal(area).run(1_000_000)
        finally:
            os.close(area)

    def fresh(self, number: int) -> "World":
        """Return the same world with another, empty folder under attack."""
        folder = f"{number:016}"
        self.root.create(1, folder)
        return World(self.base, self.root, folder)

    @property
    def outside(self) -> Path:
        """A directory beside the storage root."""
        return self.base / "outside"

    def asked(self, path: str) -> str:
        """Return the path with `{outside}` replaced by that place as seen from the file system's root."""
        return path.replace("{outside}", str(self.outside).removeprefix("/"))

    @property
    def files(self) -> Path:
        """What sessions mount, in which a hostile one makes whatever it likes."""
        return Path(self.root.files_path(1, self.folder))

    def open(self) -> FolderFiles:
        """Return the folder's files as the platform opens them."""
        return self.root.open(1, self.folder)

    def fingerprint(self) -> str:
        """Return a digest of everything that is not the attacker's: names, owners, modes, times and contents."""
        digest = hashlib.sha256()
        mine = Path(self.root.folder_path(1, FOLDER)).parent
        for directory, names, files in os.walk(self.base):
            here = Path(directory)
            if here == mine.parent:
                names.remove(mine.name)
            names.sort()
            for name in sorted([*names, *files]):
                digest.update(_described(here / name))
        return digest.hexdigest()


def _described(path: Path) -> bytes:
    status = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
    facts = (str(path), status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns)
    return repr((*facts, content)).encode()


Plant = Callable[[World], object]  # makes the trap in the folder


def link(name: str, target: str) -> Plant:
    """Return what makes a symbolic link; `{outside}` and `{other}` stand for places that must not be reached."""

    def plant(world: World) -> None:
        other = world.root.files_path(2, OTHER)
        (world.files / name).symlink_to(target.format(outside=world.outside, other=other))

    return plant


def both(*plants: Plant) -> Plant:
    """Return what makes several traps."""

    def plant(world: World) -> None:
        for each in plants:
            each(world)

    return plant


def content(name: str | bytes, text: str = "mine") -> Plant:
    """Return what makes an ordinary file, and the directories above it."""

    def plant(world: World) -> None:
        path = os.path.join(os.fsencode(world.files), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    return plant


def nothing(world: World) -> None:
    """Make no trap: the path itself is the attack."""


def hard_link(name: str) -> Plant:
    """Return what makes a hard link to a file outside, which no session can: its mount ends at the folder."""
    return lambda world: os.link(world.outside / "secret", world.files / name)


def node(name: str, kind: int, device: tuple[int, int] = (1, 5)) -> Plant:
    """Return what makes a device (1, 5 is /dev/zero), FIFO or socket; a FIFO where devices need rights."""

    def plant(world: World) -> None:
        try:
            os.mknod(world.files / name, kind | 0o666, os.makedev(*device))
        except PermissionError:
            os.mkfifo(world.files / name)

    return plant


def deep(levels: int, name: str = "d") -> Plant:
    """Return what makes directories of one name in each other, deeper than any path can tell."""

    def plant(world: World) -> None:
        current = os.open(world.files, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir(name, dir_fd=current)
            below = os.open(name, os.O_RDONLY, dir_fd=current)
            os.close(current)
            current = below
        os.close(current)

    return plant
