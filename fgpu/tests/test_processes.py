"""All processes of a session share one account, and it survives whatever happens to any of them."""

from __future__ import annotations

import mmap
import os
import platform
import select
import signal
import struct
from pathlib import Path

import pytest

from fgpu.mounts import BUILD
from fgpu.region import SHARE_BASE, SHARE_BYTES
from fgpu.tests.host import GIB, MIB, OUT_OF_MEMORY, SYSTEM_NOT_READY, Host, Probe, Session, limit
from fgpu.tests.region import GPU_BASE, GPU_BYTES, HIGH, SLOT_BASE, SLOT_BYTES, read_note

FUTEX = {"x86_64": 202}.get(platform.machine(), 98)  # the number of the system call


def edit(region: Path, offset: int, data: bytes) -> None:
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[offset : offset + len(data)] = data


def send(probe: Probe, command: str) -> None:
    """Ask without waiting for the answer."""
    assert probe.process.stdin
    probe.process.stdin.write(command + "\n")
    probe.process.stdin.flush()


def until_state(pid: int, state: str) -> None:
    while Path(f"/proc/{pid}/stat").read_text().split()[2] != state:
        pass


def is_in_futex(pid: int) -> bool:
    """Whether the process waits for a lock."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == str(FUTEX)


def read_slot(session: Session, index: int) -> tuple[int, int, int, int]:
    """Return pid, start time, stack and used bytes on the first GPU of a slot."""
    pid, _pad, started, stack, used = struct.unpack_from(
        "<iiQQQ", session.region.read_bytes(), SLOT_BASE + index * SLOT_BYTES
    )
    return pid, started, stack, used


def test_two_processes_share_the_cap(host: Host) -> None:
    session = host.session()
    with session.probe() as first, session.probe() as second:
        assert first.alloc(GIB + 512 * MIB) == 0
        assert second.free() == 512 * MIB
        assert second.alloc(GIB) == OUT_OF_MEMORY
        assert second.alloc(512 * MIB) == 0
        assert first.free() == 0


def test_a_wall_clock_that_is_set_refuses_nobody(host: Host) -> None:
    session = host.session()
    preload = f"{BUILD / session.hook}:{BUILD / 'test/libwallclock.so'}"
    with session.probe() as holder, session.probe(LD_PRELOAD=preload) as waiting:
        stdin, stdout = waiting.process.stdin, waiting.process.stdout
        assert stdin
        assert stdout
        send(holder, "lockstop")
        until_state(holder.pid, "T")
        send(waiting, f"alloc plain {GIB} 0")
        while not is_in_futex(waiting.pid) and not select.select([stdout], [], [], 0)[0]:
            pass
        os.kill(holder.pid, signal.SIGCONT)
        assert stdout.readline().split() == ["0"]


def test_two_sessions_on_one_gpu_do_not_share_the_cap(host: Host) -> None:
    with host.session().probe() as one, host.session().probe() as other:
        assert one.alloc(2 * GIB) == 0
        assert other.alloc(2 * GIB) == 0


def test_thirty_two_processes_at_the_cap_get_exactly_what_fits(host: Host) -> None:
    session = host.session()
    probes = [session.probe() for _ in range(32)]
    for probe in probes:
        stdin = probe.process.stdin
        assert stdin
        stdin.write(f"alloc plain {128 * MIB} 0\n")
        stdin.flush()
    codes = [int(stdout.readline()) for probe in probes if (stdout := probe.process.stdout)]
    assert sorted(codes) == [0] * 16 + [OUT_OF_MEMORY] * 16
    assert probes[0].free() == 0


def test_many_threads_of_many_processes_leave_nothing_behind(host: Host) -> None:
    session = host.session(limit(sm="100"))
    crowd = [session.start("test/threads") for _ in range(4)]
    assert [process.wait(timeout=60) for process in crowd] == [0] * 4
    with session.probe() as probe:
        assert probe.free() == 2 * GIB


def test_a_killed_process_gives_its_memory_back(host: Host) -> None:
    session = host.session()
    victim = session.probe()
    with session.probe() as survivor:
        assert victim.alloc(2 * GIB) == 0
        assert survivor.alloc(1) == OUT_OF_MEMORY
        victim.kill()
        assert survivor.alloc(2 * GIB) == 0


def test_a_process_killed_while_it_holds_the_lock_stops_nobody(host: Host) -> None:
    session = host.session()
    victim = session.probe()
    assert victim.alloc(GIB) == 0
    assert victim.ask("lockdie") == []
    victim.process.wait()
    with session.probe() as survivor:
        assert survivor.alloc(2 * GIB) == 0


def test_a_child_of_fork_holds_nothing_of_its_parents(host: Host) -> None:
    session = host.session()
    with session.probe() as parent:
        assert parent.alloc(GIB) == 0
        assert parent.ask(f"fork {GIB}") == ["3", "0"]  # no CUDA before its own cuInit, then a share of the same cap
        assert parent.free() == GIB
        assert parent.ask(f"fork {2 * GIB}") == ["3", str(OUT_OF_MEMORY)]
        assert parent.code("free 0") == 0
        assert parent.free() == 2 * GIB


def test_exec_gives_the_memory_back_though_the_pid_lives_on(host: Host) -> None:
    session = host.session()
    runner = session.probe()
    assert runner.alloc(2 * GIB) == 0
    stdin = runner.process.stdin
    assert stdin
    stdin.write("exec\n")
    stdin.flush()
    while "sleep" not in Path(f"/proc/{runner.pid}/comm").read_text():
        os.sched_yield()
    with session.probe() as other:
        assert other.alloc(2 * GIB) == 0


def test_a_reused_pid_is_not_the_former_process(host: Host) -> None:
    session = host.session()
    with session.probe() as probe:
        assert probe.alloc(MIB) == 0
        pid, started, _stack, _used = read_slot(session, 0)
        assert pid == probe.pid
        ghost = struct.pack("<iiQQQ", os.getpid(), 0, started - 1, 0, 2 * GIB)  # our pid, but not our start time
        edit(session.region, SLOT_BASE + 9 * SLOT_BYTES, ghost)
        edit(session.region, HIGH, struct.pack("<I", 10))
        assert probe.alloc(GIB, slot=1) == 0


def test_a_process_that_closed_all_its_files_is_still_counted(host: Host) -> None:
    session = host.session()
    with session.probe() as daemon, session.probe() as other:
        assert daemon.alloc(GIB) == 0
        assert daemon.code("closefds") == 0
        assert other.alloc(2 * GIB) == OUT_OF_MEMORY
        assert daemon.alloc(512 * MIB, slot=1) == 0
        assert other.alloc(512 * MIB) == 0


def test_lowering_its_count_gains_a_process_nothing(host: Host) -> None:
    session = host.session()
    with session.probe() as probe:
        assert probe.alloc(GIB) == 0
        edit(session.region, SLOT_BASE + 24, struct.pack("<Q", 0))
        assert probe.alloc(2 * GIB, slot=1) == OUT_OF_MEMORY
        edit(session.region, SLOT_BASE, bytes(SLOT_BYTES))
        assert probe.alloc(2 * GIB, slot=1) == OUT_OF_MEMORY
        assert probe.alloc(GIB, slot=1) == 0


@pytest.mark.parametrize("offset", [0, 4])
def test_a_garbled_region_stops_allocations(host: Host, offset: int) -> None:
    session = host.session()
    with session.probe() as probe:
        assert probe.alloc(MIB) == 0
        edit(session.region, offset, b"\xff\xff\xff\xff")
        assert probe.alloc(MIB, slot=1) == SYSTEM_NOT_READY
        assert probe.code("info") == SYSTEM_NOT_READY


def test_the_256th_process_is_the_last_one(host: Host) -> None:
    session = host.session()
    with session.probe() as probe:
        slot = session.region.read_bytes()[SLOT_BASE : SLOT_BASE + SLOT_BYTES]
        for index in range(1, 256):  # the probe's own identity in every slot: all of them look alive
            edit(session.region, SLOT_BASE + index * SLOT_BYTES, slot)
        edit(session.region, HIGH, struct.pack("<I", 256))
        with session.probe(enter=False) as late:
            assert late.code("init") == SYSTEM_NOT_READY
        assert "no slot left" in read_note(session.region)
        probe.kill()
        with session.probe() as later:
            assert later.alloc(2 * GIB) == 0


def test_offsets_in_tests_are_those_of_the_struct(host: Host) -> None:
    with host.session().probe() as probe:
        layout = [GPU_BYTES, SLOT_BYTES, GPU_BASE, SLOT_BASE, HIGH, SHARE_BASE, SHARE_BYTES]
        assert probe.ask("layout") == [str(number) for number in layout]


def test_shares_of_several_sessions_add_up_exactly(host: Host) -> None:
    shares = {"50": 4 * GIB, "17.5": 1_503_238_553, "32.5": 4 * GIB - 1_503_238_553}
    sessions = [host.session(limit(memory=memory, sm=sm)) for sm, memory in shares.items()]
    probes = [session.probe() for session in sessions]
    totals = [int(probe.ask("total 0")[1]) for probe in probes]
    assert sum(totals) == 8 * GIB
    assert [probe.alloc(total) for probe, total in zip(probes, totals, strict=True)] == [0, 0, 0]
