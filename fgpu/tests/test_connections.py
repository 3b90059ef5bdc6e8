"""Connections to the arbiter: one session's take nothing from others, and a process without one has no extra time."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import struct
import termios
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from fgpu.limits import GRANT_BYTES
from fgpu.tests.host import Host, Session, limit
from fgpu.tests.region import read_note
from fgpu.tests.sharing import Load, run_beside, sessions_of
from fgpu.tests.test_arbiter import WANTS_BUSY, connect, status
from tests.wait import until

MANY = 600  # connections, more than an arbiter of 1,024 descriptors could hold with a pidfd each
MOST = 64  # connections of a session; arbiter.h
FEW_DESCRIPTORS = 48
FOR_EVER = 1 << 62  # a beat that is never old
SILENCE_MS = 5000
TOLERANCE = 1.5  # percentage points
BEATS_NS = 10**9


def descriptors(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return found


def dial(session: Session) -> socket.socket:
    """Connect, whether or not the arbiter takes the connection."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.setblocking(True)
    line.connect(os.fspath(session.meeting_place / "socket" / "arbiter"))
    line.setblocking(False)
    return line


def is_heard(line: socket.socket) -> bool:
    """Return whether the arbiter has said its word; False also where it has hung up."""
    try:
        return len(line.recv(4)) == 4
    except (BlockingIOError, ConnectionError, OSError):
        return False


def is_closed(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        return line.recv(4) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def is_read(line: socket.socket) -> bool:
    """Return whether the arbiter has read all that was sent."""
    unread: int = struct.unpack("i", fcntl.ioctl(line, termios.TIOCOUTQ, bytes(4)))[0]
    return unread == 0


def set_limit(pid: int, soft: int, hard: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_the_arbiter_raises_its_limit_of_descriptors(host: Host) -> None:
    arbiter = host.arbiter("arbiter-x86_64", (64, 5000))
    assert resource.prlimit(arbiter.pid, resource.RLIMIT_NOFILE) == (5000, 5000)


def test_connections_of_one_process_share_a_pidfd(host: Host) -> None:
    session = host.session()
    arbiter = host.arbiter("arbiter-x86_64")
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(connect(session))
        assert descriptors(arbiter.pid).count("anon_inode:[pidfd]") == 1
        until(lambda: status(host)[session.meeting_place.name]["pids"] == str(os.getpid()))
    until(lambda: "anon_inode:[pidfd]" not in descriptors(arbiter.pid))


def test_many_connections_of_a_session_keep_nobody_else_out(host: Host) -> None:
    greedy, other = host.session(), host.session()
    arbiter = host.arbiter("arbiter-x86_64", (1024, 1024))
    with ExitStack() as stack:
        lines = [stack.enter_context(dial(greedy)) for _ in range(MANY)]
        for line in lines:
            with suppress(OSError):
                line.send(WANTS_BUSY)
        until(lambda: sum(is_closed(line) for line in lines) >= MANY - MOST)
        assert len(descriptors(arbiter.pid)) < 2 * MOST
        late = host.session()
        until(lambda: late.meeting_place.name in status(host))
        for session in (other, late):
            with session.probe() as probe:
                assert [probe.code("kernel") for _ in range(5)] == [0] * 5


def test_an_idle_connection_makes_room_for_the_next(host: Host) -> None:
    session = host.session()
    host.arbiter("arbiter-x86_64")
    with ExitStack() as stack:
        idle = stack.enter_context(connect(session))
        lines = []
        for _ in range(MOST):
            lines.append(stack.enter_context(connect(session)))
            lines[-1].send(WANTS_BUSY)
        assert idle.recv(4) == b""
        until(lambda: all(is_read(line) for line in lines))  # or the last one would be idle yet
        with dial(session) as refused:
            until(lambda: is_closed(refused))


def test_a_process_whose_idle_connection_was_closed_launches_on(host: Host) -> None:
    session = host.session()
    host.arbiter("arbiter-x86_64")
    with session.probe() as probe, ExitStack() as stack:
        assert [probe.code("kernel"), probe.code("sync")] == [0, 0]
        lines = [stack.enter_context(connect(session)) for _ in range(MOST)]
        until(lambda: str(probe.pid) not in status(host)[session.meeting_place.name]["pids"])
        assert [probe.code("kernel") for _ in range(5)] == [0] * 5
        until(lambda: str(probe.pid) in status(host)[session.meeting_place.name]["pids"])
        assert sum(is_closed(line) for line in lines) == 1


def test_without_descriptors_the_arbiter_rests_and_goes_on(host: Host) -> None:
    """A connection that cannot be accepted is not looked at again and again, and is there when one can be."""
    session = host.session()
    arbiter = host.arbiter("arbiter-x86_64")
    page = session.meeting_place / "grant"
    until(lambda: status(host) != {})
    set_limit(arbiter.pid, 3, 5000)
    with dial(session) as waiting:
        began, ticks = beat(page), cpu_ticks(arbiter.pid)
        until(lambda: beat(page) >= began + BEATS_NS)
        assert cpu_ticks(arbiter.pid) - ticks <= os.sysconf("SC_CLK_TCK") * BEATS_NS / 10**9 / 5
        assert not is_heard(waiting)
        set_limit(arbiter.pid, 5000, 5000)
        until(lambda: is_heard(waiting))


def test_with_few_descriptors_sessions_are_still_adopted(host: Host) -> None:
    sessions = [host.session() for _ in range(4)]
    host.arbiter("arbiter-x86_64", (FEW_DESCRIPTORS, FEW_DESCRIPTORS))
    with ExitStack() as stack:
        for session in sessions:
            for _ in range(FEW_DESCRIPTORS):
                stack.enter_context(dial(session))
        late = host.session()
        until(lambda: late.meeting_place.name in status(host))


def beat(page: Path) -> int:
    return int(struct.unpack_from("=Q", page.read_bytes(), 8)[0])


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_time_without_a_connection_is_not_on_top(host: Host) -> None:
    """The second process of the session of 25 % has no connection."""
    session, neighbour = sessions_of(host, [25, 60])
    load = Load("async", 1000)
    apart = Session(host, session.folder, extra={"FGPU_SOCKET": "/nonexistent"})
    figures = run_beside([(session, load), (apart, load), (neighbour, load)])
    assert figures[0][1] + figures[1][1] == pytest.approx(25, abs=TOLERANCE)
    assert figures[2][1] == pytest.approx(60, abs=TOLERANCE)
    assert "takes no more connections" in read_note(session.region)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_silent_arbiter_is_waited_for_then_the_budget_decides(host: Host, is_connected: bool) -> None:
    """Its page is fresh, and it accepts no connection; or there is none."""
    session = host.session(limit(sm="25"))
    head = struct.pack("=IIQQ", 0x544E5247, 1, FOR_EVER, 1)
    (session.meeting_place / "grant").write_bytes(head.ljust(GRANT_BYTES, b"\0"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.fspath(session.meeting_place / "socket" / "arbiter"))
        if is_connected:
            listener.listen()
        [[_, part, longest_ms]] = run_beside([(session, Load("async", 1000, 20_000))], arbiter=False)
    assert longest_ms == pytest.approx(SILENCE_MS, abs=200)
    assert part == pytest.approx(25 * (20_000 - SILENCE_MS) / 20_000, abs=TOLERANCE)
    assert "budget" in read_note(session.region)


def test_time_without_a_turn_is_reported(host: Host) -> None:
    liar, honest = sessions_of(host, [5, 95])
    host.arbiter("arbiter-x86_64")
    with connect(liar) as line, honest.probe() as probe:
        line.send(WANTS_BUSY)
        assert [probe.code("kernel") for _ in range(5)] == [0] * 5
        until(lambda: int(status(host)[liar.meeting_place.name].get("unheld_ns", 0)) > 10**8)
        assert status(host)[honest.meeting_place.name]["unheld_ns"] == "0"
