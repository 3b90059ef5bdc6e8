"""A share that changes while its session runs: processes keep their memory and are held to the new share."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from fgpu.limits import LOOK_MS, format_limits, rewrite
from fgpu.region import HOST_MEMORY, used_bytes
from fgpu.tests.host import GIB, MIB, NOT_INITIALIZED, OUT_OF_MEMORY, UUIDS, Host, Probe, Session, limit
from fgpu.tests.region import GPU_BASE
from fgpu.tests.sharing import CLOCK, Load, sessions_of
from tests.wait import until


def resize(session: Session, memory: int = 2 * GIB, sm: str = "25", pinned_bytes: int = 0) -> None:
    rewrite(session.limits, format_limits([limit(memory=memory, sm=sm)], pinned_bytes=pinned_bytes))


def total(words: Sequence[str]) -> int:
    assert words[0] == "0"
    return int(words[2])


def test_a_running_process_has_the_new_share_of_memory(host: Host) -> None:
    session = host.session()
    inode = session.limits.stat().st_ino
    with session.probe() as probe:
        assert probe.alloc(GIB) == 0
        resize(session, 4 * GIB)
        assert total(probe.ask("info")) == 4 * GIB
        assert probe.alloc(3 * GIB, slot=1) == 0
        assert probe.code("free 1") == 0
        resize(session, GIB + 256 * MIB)
        assert until(lambda: probe.alloc(512 * MIB, slot=1) == OUT_OF_MEMORY or probe.code("free 1"))
        assert probe.alloc(256 * MIB, slot=1) == 0
        assert probe.free() == 0
    assert session.limits.stat().st_ino == inode


def test_a_smaller_share_counts_ten_milliseconds_later(host: Host) -> None:
    session = host.session(limit(sm="100"))

    def pass_time(probe: Probe, ms: int) -> None:
        assert [probe.code("kernel") for _ in range(ms)] == [0] * ms
        assert probe.code("sync") == 0

    with session.probe(enter=True, **CLOCK) as probe:
        pass_time(probe, 1)
        assert probe.alloc(GIB) == 0
        resize(session, GIB + 256 * MIB, sm="100")
        pass_time(probe, LOOK_MS - 1)
        assert probe.alloc(512 * MIB, slot=1) == 0  # without a look at the file
        assert probe.code("free 1") == 0
        pass_time(probe, 1)
        assert probe.alloc(512 * MIB, slot=1) == OUT_OF_MEMORY


def test_a_greater_share_counts_at_once(host: Host) -> None:
    session = host.session()
    with session.probe(enter=True, **CLOCK) as probe:  # a clock that stands still
        assert probe.alloc(GIB) == 0
        resize(session, 4 * GIB)
        assert probe.alloc(3 * GIB, slot=1) == 0


def test_a_child_looks_at_its_limits_first(host: Host) -> None:
    session = host.session(limit(sm="100"))
    with session.probe(enter=True, **CLOCK) as probe:
        assert probe.code("kernel") == probe.code("sync") == 0
        assert probe.alloc(GIB) == 0
        resize(session, GIB + 256 * MIB, sm="100")
        assert probe.ask(f"fork {512 * MIB}") == [str(NOT_INITIALIZED), str(OUT_OF_MEMORY)]


def test_nvidia_smi_shows_the_new_share(host: Host) -> None:
    session = host.session()
    for memory in (GIB, 3 * GIB):
        resize(session, memory)
        assert f"{memory // MIB}MiB" in session.run("sim/nvidia-smi").replace(" ", "")


def test_page_locked_memory_follows_the_memory(host: Host) -> None:
    session = host.session(pinned_bytes=GIB)
    with session.probe() as probe:
        assert probe.alloc(GIB, "pinned") == 0
        assert probe.alloc(MIB, "pinned", 1) == OUT_OF_MEMORY
        resize(session, pinned_bytes=GIB + MIB)
        assert probe.alloc(MIB, "pinned", 1) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=2\npolicy=enforce\n",
        format_limits([limit(memory=8 * GIB)]).removesuffix("end\n"),
        format_limits([limit(memory=8 * GIB)])[:-20],
        format_limits([limit(UUIDS[1], memory=8 * GIB)]),
        format_limits([limit(memory=8 * GIB), limit(UUIDS[1], memory=8 * GIB)]),
        format_limits([limit(memory=8 * GIB, sm="100")]),
    ],
)
def test_half_written_or_other_limits_change_nothing(host: Host, text: str) -> None:
    session = host.session()
    with session.probe() as probe:
        descriptor = os.open(session.limits, os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, text.encode())
        os.close(descriptor)
        assert total(probe.ask("info")) == 2 * GIB
        assert probe.alloc(3 * GIB) == OUT_OF_MEMORY
        resize(session, 4 * GIB)
        assert probe.alloc(3 * GIB) == 0


def budget(session: Session) -> int:
    """Return the nanoseconds of GPU time that are left of the frame's share."""
    left: int = struct.unpack_from("=Qq", session.region.read_bytes(), GPU_BASE)[1]
    return left


def test_the_gate_pays_in_the_new_share(host: Host) -> None:
    session = host.session(limit(sm="50"))
    with session.probe() as probe:
        assert until(lambda: probe.code("kernel") == 0 and budget(session) > 40_000_000)
        resize(session, sm="20")
        assert until(lambda: probe.code("kernel") == 0 and 10_000_000 < budget(session) <= 20_000_000)
        resize(session, sm="70")
        assert until(lambda: probe.code("kernel") == 0 and budget(session) > 60_000_000)


def test_the_arbiter_gives_turns_by_the_new_shares(host: Host) -> None:
    sessions = sessions_of(host, [20, 80])
    clock = CLOCK | {"FGPU_SIM_PARTIES": "3"}
    host.arbiter(**clock)
    for session in sessions:
        lease = session.meeting_place / "lease.conf"
        text = format_limits([limit(sm="50")])
        new = lease.with_name("new")
        new.write_text(text)
        new.chmod(0o444)
        new.replace(lease)
        rewrite(session.limits, text)
    load = Load("async", 1000).arguments()
    processes = [session.start("test/load", *load, **clock) for session in sessions]
    figures = [float(process.communicate(timeout=120)[0].split()[1]) for process in processes]
    assert figures == pytest.approx([50, 50], abs=4)


def test_the_host_reads_what_processes_use(host: Host, tmp_path: Path) -> None:
    session = host.session(limit(), limit(UUIDS[1]), pinned_bytes=GIB)
    host.configure(gpus=2)

    def used(*, gone: bool = True) -> tuple[int, int]:
        found = used_bytes(session.region, lambda pid, started: gone)
        assert not any(found[1:HOST_MEMORY])
        return found[0], found[HOST_MEMORY]

    with session.probe() as probe:
        assert used() == (0, 0)
        assert probe.alloc(GIB) == 0
        assert probe.alloc(MIB, "pinned", 1) == 0
        assert used() == (GIB, MIB)
        assert probe.code("closefds") == 0  # lets go of its lock, but not of its memory
        assert used(gone=False) == (GIB, MIB)
    with session.probe() as probe:
        assert probe.alloc(GIB) == 0
        probe.kill()
        assert used() == (0, 0)
    (tmp_path / "short").write_bytes(b"short")
    with pytest.raises(ValueError, match="not a region"):
        used_bytes(tmp_path / "short", lambda pid, started: True)


def test_limits_are_checked_before_they_are_written(host: Host) -> None:
    session = host.session()
    before = session.limits.read_text()
    with pytest.raises(ValueError, match="limit"):
        rewrite(session.limits, before.removesuffix("end\n"))
    assert session.limits.read_text() == before
