"""Reads of /proc: the real one with hostile processes, and files of it with what a kernel would never be asked for."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from resources import procfs
from resources.procfs import ListeningSocket
from tests.wait import until

PR_SET_NAME = 15
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write a file of a /proc of our own."""
    monkeypatch.setattr(procfs, "PROC", tmp_path)

    def write(path: str, content: bytes | str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content.encode() if isinstance(content, str) else content)

    return write


@contextmanager
def named(name: bytes) -> Iterator[int]:
    """Run a process that gives itself this name."""
    code = f"import ctypes; ctypes.CDLL(None).prctl({PR_SET_NAME}, {name!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a) Z 1 (b", "a) Z 1 (b"),
        (b"x\nState: Z", "x\ufffdState: Z"),
        (b"\xff\x1b[2J", "\ufffd\ufffd[2J"),
        (b") R 1 1 1 1 1 1", ") R 1 1 1 1 1 1"),
    ],
)
def test_a_name_changes_no_other_field(name: bytes, shown: str) -> None:
    with named(name) as pid:
        state, parent, *_ = procfs.stat_fields(f"{pid}/stat")
        assert (state in "RS", parent) == (True, str(os.getpid()))
        assert procfs.name_of(pid) == shown
        assert pid in procfs.children(os.getpid())
        assert pid in procfs.pids()


def test_huge_arguments_are_read_in_part() -> None:
    argument = "x" * 100_000
    with subprocess.Popen(["sh", "-c", "read line", *[argument] * 15], stdin=subprocess.PIPE) as process:
        until(lambda: procfs.arguments(process.pid)[0] == b"sh")
        arguments = procfs.arguments(process.pid)
        process.kill()
    assert sum(map(len, arguments)) + len(arguments) - 1 == procfs.FILE_BYTES


def test_of_an_ended_process_nothing_is_read() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    pid = process.pid
    assert procfs.text(f"{pid}/status") == ""
    assert [*procfs.lines(f"{pid}/maps"), *procfs.listening_sockets(pid)] == []
    assert not any([procfs.arguments(pid), procfs.stat_fields(f"{pid}/stat"), procfs.children(pid), procfs.mounts(pid)])
    with pytest.raises(OSError, match=str(pid)):
        procfs.read(f"{pid}/uid_map")


def test_zombies_have_a_state_and_nothing_else() -> None:
    process = subprocess.Popen(["true"])
    until(lambda: procfs.stat_fields(f"{process.pid}/stat")[0] == "Z")
    assert procfs.arguments(process.pid) == [b""]
    assert [*procfs.lines(f"{process.pid}/maps"), *procfs.mounts(process.pid)] == []
    process.wait()


def test_many_processes_are_listed_one_by_one(proc: Callable[..., None], tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / str(number)).mkdir()
    proc("1x/stat", "no process")
    proc("sys/stat", "neither")
    assert sorted(procfs.pids()) == [*range(2000)]
    assert next(procfs.pids()) in range(2000), "it can be left"


@pytest.mark.loopback
def test_listening_sockets_are_found() -> None:
    with socket.socket(socket.AF_INET6) as six, socket.socket() as four, socket.socket() as bound:
        for listener, address in ((six, "::1"), (four, "127.0.0.2")):
            listener.bind((address, 0))
            listener.listen()
        bound.bind(("127.0.0.1", 0))
        found = {each.port: each.address for each in procfs.listening_sockets()}
        assert found[six.getsockname()[1]] == IPv6Address("::1")
        assert found[four.getsockname()[1]] == IPv4Address("127.0.0.2")
        assert bound.getsockname()[1] not in found


def row(address: str, state: str = "0A", number: int = 0) -> str:
    return f"{number:4}: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000 0 {number} 1\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (row("0100007F:1F90"), ListeningSocket(IPv4Address("127.0.0.1"), 8080)),
        (row("0" * 32 + ":0016"), ListeningSocket(IPv6Address("::"), 22)),
        (row("0000000000000000FFFF00000100007F:0050"), ListeningSocket(IPv6Address("::ffff:127.0.0.1"), 80)),
        (row("0100007F:1F90", "01"), None),
        (row("0100007F:1F90", "06").replace("1000 0", "1000 0A"), None),  # the state of another field
        (row("0100007F:1F9"), None),
        (row("0100007F00:1F90"), None),
        (row("0100007F:1F90")[:30], None),  # cut
        ("", None),
        ("\x00 0A \x00", None),
    ],
)
def test_a_line_of_sockets_is_understood_or_left_out(line: str, expected: ListeningSocket | None) -> None:
    assert procfs.listening_socket(line) == expected


def test_of_many_sockets_a_part_is_read(proc: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("0100007F:0001", "01", number) for number in range(100_000)]
    proc("7/net/tcp", "".join([HEADER, row("00000000:0050"), *rows, row("00000000:0051")]))
    assert [each.port for each in procfs.listening_sockets(7)] == [0x50, 0x51]
    monkeypatch.setattr(procfs.lines, "__defaults__", (1 << 20,))
    assert [each.port for each in procfs.listening_sockets(7)] == [0x50]


def test_mounts_of_any_name_are_one_line_each(proc: Callable[..., None]) -> None:
    content = (
        b"5 1 0:1 /a\\040b /c\\012d\\134 ro,nosuid shared:3 - ext4 /dev/sda rw\n"
        b"6 1 0:1 / /\xff\x0b\r- rw - tmpfs none size=1k,x=\\040\n"
        b"7 1 0:1 / /without\n"
        b"\n"
        b"8 1 0:1 / /cut rw - tm"
    )
    proc("7/mountinfo", content)
    first, second = procfs.mounts(7)
    assert (first.number, first.root, first.point, first.is_read_only, first.kind) == (
        5,
        "/a b",
        "/c\nd\\",
        True,
        "ext4",
    )
    assert (os.fsencode(second.point), second.is_read_only) == (b"/\xff\x0b\r-", False)
    assert second.super_options == "size=1k,x=\\040"


def test_mounts_of_this_process_are_found() -> None:
    assert "proc" in {mount.kind for mount in procfs.mounts() if mount.point == "/proc"}


def test_a_long_line_ends_at_the_bound(proc: Callable[..., None]) -> None:
    proc("7/maps", b"x" * 5000)
    assert [len(line) for line in procfs.lines("7/maps", 1000)] == [1000]
    assert len(procfs.text("7/maps", 10)) == 10


def test_the_boot_has_an_id() -> None:
    assert len(procfs.boot_id()) == 36
