"""Sessions share a GPU by the turns that the arbiter gives: exact figures, on the simulated timeline and clock."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fgpu.limits import Sharing
from fgpu.mounts import BUILD
from fgpu.simulated import TimeSlicing
from fgpu.tests.host import GIB, Host, Session, limit
from fgpu.tests.sharing import CLOCK, Load, contend, run_beside, sessions_of
from tests.wait import SECONDS, until

TOLERANCE = 3.0  # percentage points
OF_LONG_KERNELS = 5.0  # where one kernel is twenty turns
FALLBACK_MS = 250
UNEQUAL = [10, 20, 30, 40]
WELCOME = bytes([1, 0, 0, 0])
WANTS_BUSY = bytes([1, 0, 3, 0])


def status(host: Host) -> dict[str, dict[str, str]]:
    """Return {session: {field: value}} of the arbiter's report."""
    try:
        lines = (host.arbiter_folder / "status").read_text().splitlines()
    except FileNotFoundError:
        return {}
    rows = [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]
    return {row["session"]: row for row in rows}


@pytest.mark.parametrize(
    ("shares", "sharing"), [([50] * 2, "cap"), ([10] * 10, "cap"), (UNEQUAL, "cap"), (UNEQUAL, "burst")], ids=str
)
@pytest.mark.parametrize(
    "load", [Load("async", 20), Load("async", 1000), Load("async", 50_000), Load("graph", 1000)], ids=str
)
def test_each_session_gets_its_share_and_little_is_lost(
    host: Host, shares: list[float], load: Load, sharing: Sharing
) -> None:
    seen, total = contend(host, shares, load, sharing)
    assert seen == pytest.approx(shares, abs=TOLERANCE)
    assert total > 0.95 * 95.2  # of what time slices of 2 ms and switches of 0.1 ms leave


def test_kernels_that_outlast_many_turns_are_paid_back(host: Host) -> None:
    seen, total = contend(host, UNEQUAL, Load("async", 200_000, 20_000))
    assert seen == pytest.approx(UNEQUAL, abs=OF_LONG_KERNELS)
    assert total > 0.95 * 95.2 - OF_LONG_KERNELS  # how many are under way at the end depends on who is heard first


def test_shares_hold_where_kernels_are_not_interrupted(host: Host) -> None:
    host.configure(gpus=1, slicing=TimeSlicing(preempt=False))
    seen, _ = contend(host, UNEQUAL, Load("async", 20_000))
    assert seen == pytest.approx(UNEQUAL, abs=TOLERANCE)


@pytest.mark.parametrize(("sharing", "expected"), [("cap", 25), ("burst", 100)])
@pytest.mark.parametrize("pattern", ["async", "graph", "sync"])
def test_alone_a_session_is_capped_or_may_have_it_all(
    host: Host, pattern: str, sharing: Sharing, expected: float
) -> None:
    seen, _ = contend(host, [25], Load(pattern, 1000), sharing)
    assert seen == pytest.approx([expected], abs=TOLERANCE)


def test_what_is_left_idle_is_split_by_the_shares(host: Host) -> None:
    seen, _ = contend(host, [10, 20], Load("async", 1000), "burst")
    assert seen == pytest.approx([33.3, 66.7], abs=TOLERANCE)


@pytest.mark.parametrize("neighbour_us", [1000, 50_000])
def test_an_owner_that_wakes_has_its_share_within_200_ms(host: Host, neighbour_us: int) -> None:
    owner, neighbour = sessions_of(host, [60, 40], "burst")
    loads = [(owner, Load("wake", 1000, 1000, 500_000)), (neighbour, Load("async", neighbour_us, 2000))]
    first_ms, early_percent, _ = run_beside(loads)[0]
    assert first_ms < 200
    assert early_percent > 60 - TOLERANCE


def test_a_launch_alone_with_a_parked_turn_does_not_wait(host: Host) -> None:
    [session] = sessions_of(host, [25], "burst")
    [[first_ms, _, _]] = run_beside([(session, Load("wake", 1000, 500, 500_000))])
    assert first_ms < 0.2


@pytest.mark.parametrize("pattern", ["short-once", "short-drop"])
def test_short_lived_processes_get_the_share_and_no_more(host: Host, pattern: str) -> None:
    [session] = sessions_of(host, [10])
    [[busy, _, _]] = run_beside([(session, Load(pattern, 200_000, 20_000))])
    assert busy <= 10 + TOLERANCE


def test_four_processes_of_a_session_have_one_share(host: Host) -> None:
    crowded, other = sessions_of(host, [25, 75])
    loads = [(crowded, Load("async", 1000))] * 4 + [(other, Load("async", 1000))]
    figures = run_beside(loads)
    assert sum(figure[1] for figure in figures[:4]) == pytest.approx(25, abs=TOLERANCE)
    assert figures[4][1] == pytest.approx(75, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("pattern", "kernel_us"),
    [("crowd", 1000), ("device", 1000), ("streams", 1000), ("cuLaunchKernel_ptsz", 1000)],
)
def test_many_streams_and_launches_on_the_device_are_charged(host: Host, pattern: str, kernel_us: int) -> None:
    seen, _ = contend(host, [25, 75], Load(pattern, kernel_us, 2000))
    assert seen == pytest.approx([25, 75], abs=TOLERANCE)


def test_short_kernels_on_a_hundred_streams_are_charged(host: Host) -> None:
    seen, _ = contend(host, [25], Load("crowd", 20, 2000))
    assert seen == pytest.approx([25], abs=TOLERANCE)


@pytest.mark.parametrize(("kernel_us", "most"), [(20, 0.3), (200, 2.1)])
def test_short_kernels_are_measured_together(host: Host, kernel_us: int, most: float) -> None:
    """Two events cost as much as a short kernel; a long one is measured by itself."""
    [[events]] = run_beside([(host.session(limit(sm="99")), Load("record", kernel_us, 500))])
    assert most - 0.3 <= events <= most


def test_a_hundred_streams_are_charged_without_an_arbiter(host: Host) -> None:
    [figures] = run_beside([(host.session(), Load("crowd", 1000))], arbiter=False)
    assert figures[1] == pytest.approx(25, abs=TOLERANCE)


def test_a_killed_process_does_not_keep_its_turn(host: Host) -> None:
    dying, other = sessions_of(host, [50, 50])
    figures = run_beside([(dying, Load("die", 10_000_000)), (other, Load("async", 1000))])
    assert figures[1][1] == pytest.approx(50, abs=TOLERANCE)
    assert figures[1][2] < 120  # ms that a launch had to wait at most


def test_without_its_arbiter_a_session_has_its_local_budget_soon(host: Host) -> None:
    [session] = sessions_of(host, [25], "burst")
    [[_, seen, longest_ms]] = run_beside([(session, Load("async", 1000, 11_000))], FGPU_ARBITER_DIES_MS="1000")
    assert seen == pytest.approx((1000 + 250 + 25 * 97.5) / 110, abs=TOLERANCE)
    assert longest_ms < FALLBACK_MS + 100  # and a frame of the budget


def test_an_arbiter_started_anew_adopts_the_sessions(host: Host) -> None:
    sessions = sessions_of(host, [25, 75])
    clock = CLOCK | {"FGPU_SIM_PARTIES": "3"}
    first = host.arbiter(**clock, FGPU_ARBITER_DIES_MS="1000")
    load = Load("async", 1000, 30_000)
    processes = [session.start("test/load", *load.arguments(), **clock) for session in sessions]
    assert first.wait(timeout=60) == -signal.SIGKILL
    host.arbiter(**clock)
    figures = [process.communicate(timeout=30)[0].split() for process in processes]
    assert all(int(row["occupied_ns"]) > 10**9 for row in status(host).values())
    assert float(figures[0][1]) <= 25 + TOLERANCE
    assert float(figures[1][1]) <= 75 + TOLERANCE


def test_a_second_arbiter_for_the_same_folder_refuses_to_run(host: Host) -> None:
    first = host.arbiter()
    command = [str(BUILD / "arbiter-x86_64"), "--dir", str(host.arbiter_folder), "--build", "b"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 3
    assert (host.arbiter_folder / "lock").read_text() == f"pid={first.pid} build=test\n"


def test_who_looks_for_an_arbiter_keeps_none_from_starting(host: Host) -> None:
    """Host workers try the lock to see whether an arbiter has it, and so hold it for a moment themselves."""
    lock = host.arbiter_folder / "lock"

    def is_at_the_lock() -> bool:
        with suppress(FileNotFoundError):  # a file that was closed meanwhile
            opened = [
                os.readlink(each) for process in host.processes for each in Path(f"/proc/{process.pid}/fd").iterdir()
            ]
            return str(lock) in opened
        return False

    with lock.open("ab") as look, ThreadPoolExecutor(1) as threads:
        fcntl.flock(look, fcntl.LOCK_SH)
        starting = threads.submit(host.arbiter, "arbiter-x86_64")
        until(lambda: starting.done() or is_at_the_lock())
        fcntl.flock(look, fcntl.LOCK_UN)
        pid = starting.result(SECONDS).pid
    assert lock.read_text() == f"pid={pid} build=test\n"


def test_the_arbiter_ends_on_request_and_leaves_no_socket(host: Host) -> None:
    session = host.session()
    arbiter = host.arbiter("arbiter-x86_64")
    place = session.meeting_place / "socket" / "arbiter"
    assert place.is_socket()
    assert place.stat().st_mode & 0o777 == 0o666
    arbiter.terminate()
    assert arbiter.wait(timeout=60) == 0
    assert not place.exists()


def test_sessions_come_and_go_while_the_arbiter_runs(host: Host) -> None:
    host.arbiter("arbiter-x86_64")
    late = host.session()
    until(lambda: (late.meeting_place / "socket" / "arbiter").is_socket())
    until(lambda: late.meeting_place.name in status(host))
    for path in sorted(late.meeting_place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    late.meeting_place.rmdir()
    other = host.session()
    until(lambda: set(status(host)) == {other.meeting_place.name})


@pytest.mark.parametrize("spoil", ["lease.conf", "grant"])
def test_a_folder_that_is_not_complete_is_left_alone(host: Host, spoil: str) -> None:
    bad, good = host.session(), host.session()
    path = bad.meeting_place / spoil
    path.chmod(0o644)
    path.write_text("nonsense")
    host.arbiter()
    until(lambda: set(status(host)) == {good.meeting_place.name})


def connect(session: Session) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.settimeout(SECONDS)
    line.connect(os.fspath(session.meeting_place / "socket" / "arbiter"))
    assert line.recv(4) == WELCOME
    return line


def test_a_liar_hurts_itself_alone(host: Host) -> None:
    """Nonsense ends its connection; a flood, and work that is never done, leave the neighbour what is its own."""
    liar, honest = host.session(limit(sm="50")), host.session(limit(sm="50"))
    host.arbiter()
    for message in (b"x", bytes([9, 0, 3, 0]), bytes([1, 200, 3, 0]), b""):
        with connect(liar) as line:
            line.send(message)
            assert line.recv(1) == b""
    with connect(liar) as flood, honest.probe() as probe:
        for _ in range(5000):
            flood.send(WANTS_BUSY)
        assert [probe.code("kernel") for _ in range(50)] == [0] * 50
        assert probe.code("sync") == 0
        until(lambda: int(status(host)[honest.meeting_place.name]["occupied_ns"]) > 0)


def test_the_report_names_the_processes(host: Host) -> None:
    session = host.session()
    host.arbiter()
    with session.probe() as probe:
        assert probe.code("kernel") == 0
        until(lambda: status(host).get(session.meeting_place.name, {}).get("pids") == str(probe.pid))
        assert status(host)[session.meeting_place.name]["processes"] == "1"
    until(lambda: status(host)[session.meeting_place.name]["processes"] == "0")


def test_a_process_stopped_in_the_regions_lock_stops_no_launches(host: Host) -> None:
    session = host.session()
    host.arbiter()
    with session.probe() as stopped, session.probe() as other:
        assert other.code("kernel") == 0
        stdin = stopped.process.stdin
        assert stdin
        stdin.write("lockstop\n")
        stdin.flush()
        until(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().split()[2] == "T")
        assert [other.code("kernel") for _ in range(20)] == [0] * 20
        stopped.process.send_signal(signal.SIGCONT)
        assert other.alloc(GIB) == 0


def test_forked_children_and_closed_connections_are_harmless(host: Host) -> None:
    session = host.session()
    host.arbiter()
    with session.probe() as probe:
        assert probe.code("kernel") == 0
        assert probe.ask(f"fork {GIB}") == ["3", "0"]
        assert probe.code("closefds") == 0
        assert [probe.code("kernel") for _ in range(20)] == [0] * 20
        assert probe.code("sync") == 0


def test_the_arbiter_is_clean_under_the_sanitizers(host: Host) -> None:
    sessions = sessions_of(host, UNEQUAL, "burst")
    clock = CLOCK | {"FGPU_SIM_PARTIES": "5"}
    arbiter = host.arbiter("test/arbiter-asan", **clock)
    processes = [session.start("test/load", "async", "1000", "2000", **clock) for session in sessions]
    for process in processes:
        process.communicate(timeout=120)
    for session in sessions:
        (session.meeting_place / "lease.conf").unlink()
        session.meeting_place.rename(host.folder / f"gone-{session.folder.name}")
    until(lambda: status(host) == {}, seconds=10)
    arbiter.terminate()
    assert arbiter.wait(timeout=60) == 0
