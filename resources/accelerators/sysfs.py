"""Reads files of the kernel below a root folder, in bounded time and size; what is not there, or is no text, is ""."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from resources.accelerators.devices import DeviceNode

FILE_BYTES: Final = 4096  # that the kernel writes to a file of sysfs at most
MAX_ENTRIES: Final = 1024  # of a folder
_NUMBER: Final = re.compile(r"([0-9]{1,9})$")


def text(path: Path) -> str:
    """Return what a file says, without white space around it."""
    try:
        with regular_file(path) as descriptor:
            return os.read(descriptor, FILE_BYTES).decode(errors="replace").strip()
    except (OSError, ValueError):
        return ""


@contextmanager
def regular_file(path: Path, flags: int = 0) -> Iterator[int]:
    """Open a file to read, without waiting where it is a pipe. Raises OSError, also for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def number(path: Path) -> int:
    """Return the number that a file says, decimal or as 0x...; 0 where it says none."""
    return number_in(text(path))


def number_in(said: str) -> int:
    """Return a number of at most 64 bits; 0 where this is none."""
    try:
        found = int(said[:20], 0)
    except ValueError:
        return 0
    return found if 0 <= found < 1 << 64 else 0


def table(path: Path) -> dict[str, int]:
    """Return the numbers of a file with one "name number" on each line."""
    pairs = (line.split() for line in text(path).splitlines())
    return {pair[0]: number_in(pair[1]) for pair in pairs if len(pair) == 2}


def entries(folder: Path, name: str) -> Iterator[Path]:
    """Yield what a folder has whose names match the expression, by the numbers at their ends."""
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in islice(found, MAX_ENTRIES) if re.fullmatch(name, entry.name)]
    except OSError:
        return
    for each in sorted(names, key=lambda each: (int(match[1]) if (match := _NUMBER.search(each)) else 0, each)):
        yield folder / each


def missing_node(root: Path, *nodes: str) -> str:
    """Return why a device cannot be used for want of one of its nodes, as the rest of a sentence; "" where it can."""
    lost = next((node for node in nodes if not (root / node.lstrip("/")).exists()), "")
    return f"{lost} is missing" if lost else ""


def own_nodes(*nodes: str) -> tuple[DeviceNode, ...]:
    """Return these nodes as a container gets them: under their own names."""
    return tuple(DeviceNode(node, node) for node in nodes)


def groups_of(root: Path, *nodes: str) -> tuple[int, ...]:
    """Return the groups that may use these nodes, but for root's."""
    found = set()
    for node in nodes:
        try:
            found.add((root / node.lstrip("/")).stat().st_gid)
        except OSError:
            continue
    return tuple(sorted(found - {0}))
