"""Files of /proc, read within bounds and parsed; see proc(5). It knows no Django.

Processes end between two reads, and what they say of themselves is their users' to choose: names with parentheses, line
ends and bytes that are no UTF-8, megabytes of arguments, tables of a line for each socket. So a file is read up to a
number of bytes, lines end at line feeds alone, bytes that are no UTF-8 are kept (os.fsdecode), and a line that is not
understood, such as the last one of a part, is left out.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
FILE_BYTES: Final = 1 << 20  # read of a file of few lines
TABLE_BYTES: Final = 32 << 20  # read of a file with a line for each mount, socket or watch
MAPS_BYTES: Final = 512 << 20  # the same of mappings, of which the kernel allows 65,530 with a path of 4 KiB each
LISTENING: Final = " 0A "  # TCP_LISTEN, net/tcp_states.h
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_SOCKET: Final = re.compile(r" *\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A ", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountEntry:
    """A mount in the namespace of a process; see proc_pid_mountinfo(5)."""

    number: int
    root: str  # the directory of its file system that is mounted
    point: str
    options: frozenset[str]
    kind: str  # of its file system
    super_options: str  # of its file system, still escaped

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written through this mount."""
        return "ro" in self.options


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """An address at which a process of a network namespace accepts connections by TCP."""

    address: IPv4Address | IPv6Address
    port: int


def read(path: str, max_bytes: int = FILE_BYTES) -> bytes:
    """Return the first bytes of a file, by its path in /proc. Raises OSError, also where its process has ended."""
    with (PROC / path).open("rb") as file:
        return file.read(max_bytes)


def text(path: str, max_bytes: int = FILE_BYTES) -> str:
    """Return the beginning of a file; "" where its process has ended, or it cannot be read."""
    with suppress(OSError):
        return os.fsdecode(read(path, max_bytes))
    return ""


def lines(path: str, max_bytes: int = TABLE_BYTES) -> Iterator[str]:
    """Yield the lines of the first bytes of a file, as they are read; as many as there are when its process ends."""
    with suppress(OSError), (PROC / path).open("rb") as file:
        while max_bytes > 0 and (line := file.readline(max_bytes)):
            max_bytes -= len(line)
            yield os.fsdecode(line.removesuffix(b"\n"))


def pids() -> Iterator[int]:
    """Yield the ids of all processes in sight, each as the folder is read; some may have ended by then."""
    with os.scandir(PROC) as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdecimal())


def arguments(pid: int) -> list[bytes]:
    """Return the beginning of a process' command line; [] where it has ended, or has none."""
    with suppress(OSError):
        return read(f"{pid}/cmdline").split(b"\0")
    return []


def name_of(pid: int) -> str:
    """Return the name of a process, which it chooses itself, fit to be shown. Raises OSError."""
    name = read(f"{pid}/comm").decode(errors="replace").strip()
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def stat_fields(path: str) -> list[str]:
    """Return the fields of a `stat` from the third on, the state; [] where the process has ended."""
    return text(path).rpartition(")")[2].split()


def children(pid: int) -> list[int]:
    """Return the children of a process' first thread; [] where it has ended."""
    return [int(child) for child in text(f"{pid}/task/{pid}/children").split()]


def boot_id() -> str:
    """Return what tells this boot of the machine from all others; "" where the kernel does not say it."""
    return text("sys/kernel/random/boot_id").strip()


def mounts(process: int | str = "self") -> list[MountEntry]:
    """Return the mounts in the namespace of a process; [] where it has ended."""
    return [mount for line in lines(f"{process}/mountinfo") if (mount := mount_entry(line))]


def unescaped(text: str) -> str:
    """Return a path of mountinfo, where blanks, line ends and backslashes are octal numbers, as it is."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def listening_sockets(process: int | str = "self") -> Iterator[ListeningSocket]:
    """Yield the listening sockets in the network namespace of a process; none where it has ended."""
    for table in ("tcp", "tcp6"):
        for line in lines(f"{process}/net/{table}"):
            if LISTENING in line and (found := listening_socket(line)):
                yield found


def listening_socket(line: str) -> ListeningSocket | None:
    """Return the socket of a line of net/tcp or net/tcp6; None where it does not listen, or this is no such line.

    Addresses are written in words of four bytes, as this machine has them in memory: little-endian ones are turned.
    """
    match = _SOCKET.match(line)
    if match is None:
        return None
    words = [bytes.fromhex(match[1][start : start + 8])[::-1] for start in range(0, len(match[1]), 8)]
    address = IPv6Address(b"".join(words)) if len(words) > 1 else IPv4Address(words[0])
    return ListeningSocket(address, int(match[2], 16))


def mount_entry(line: str) -> MountEntry | None:
    """Return the mount of a line of mountinfo; None where this is no such line."""
    before, _, after = line.partition(" - ")
    fields, described = before.split(" "), after.split(" ")
    if len(fields) < 6 or len(described) < 3:
        return None
    return MountEntry(
        number=int(fields[0]),
        root=unescaped(fields[3]),
        point=unescaped(fields[4]),
        options=frozenset(fields[5].split(",")),
        kind=described[0],
        super_options=described[2],
    )
