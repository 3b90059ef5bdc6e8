"""Sessions that use one GPU at the same time, with turns from the arbiter: shares, what is lost, and idle time."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from fgpu.hardware.common import ROOT, Bench, SessionPlace, finish, go, percent_of, readline
from fgpu.limits import Sharing

SHARING_TOLERANCE = 3.0  # percentage points
MIN_SECONDS = 6.0  # what a session has saved up at its start is little of it
MIN_BUSY_PERCENT = 95.0  # percent of what is busy without a gate
SHARES: tuple[tuple[Decimal | int, ...], ...] = ((50, 50), (25, 75), (20, 30, 50), (25,) * 4)
KERNELS_US = (20, 1000)
VIRTUAL_SHARES: tuple[tuple[Decimal | int, ...], ...] = ((25, 75), (20, 30, 50), (25,) * 4)
VIRTUAL_KERNELS_US = (1000,)
ALONE = 25  # percent, of a session that has no neighbours
OWNER, NEIGHBOUR = 60, 40  # percent
WAKE_SECONDS = 5.0  # of the neighbour, longer than all wakes
MAX_FIRST_MS = 50.0  # that an owner's first kernel waits for a neighbour with kernels of 1 ms
MIN_EARLY_PERCENT = 60.0  # of its share, which an owner has in its first 200 ms


@contextmanager
def arbiter(bench: Bench, parties: int) -> Iterator[Path]:
    """Run an arbiter on a folder of its own; on the simulated clock it is one of those that must have come."""
    folder = bench.folder / f"arbiter-{bench.sessions}"
    folder.mkdir()
    program = "test/arbiter" if bench.is_virtual else f"arbiter-{platform.machine()}"
    command = [str(ROOT / "build" / program), "--dir", str(folder), "--build", "protocol"]
    environment = (bench.base() | {"FGPU_SIM_PARTIES": str(parties + 1)}).environment
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            process.stdout.readline()  # ready
            yield folder
        finally:
            process.terminate()


def together(bench: Bench, places: Sequence[SessionPlace], kernel_us: int, parties: int) -> list[float]:
    """Return what part of the time each kept the GPU busy, all at once; 0 for one that failed."""
    settings = {"FGPU_SIM_PARTIES": str(parties), "FGPU_SECONDS": str(max(MIN_SECONDS, bench.seconds))}
    running = [bench.start(each | settings, "workload.py", "contend", str(kernel_us)) for each in places]
    return [float(found.get("busy", 0)) for found in finished(bench, running)]


def finished(bench: Bench, running: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Let programs go on together, and return what they found."""
    if not bench.is_virtual:
        for process in running:  # each has its context by then
            readline(process)
        for process in running:
            go(process)
    return [finish(process) for process in running]


def contend(bench: Bench, shares: Sequence[Decimal | int], kernel_us: int, sharing: Sharing) -> list[float]:
    count = len(shares)
    with arbiter(bench, count) as folder:
        sessions = [bench.session(share, sharing=sharing, arbiter=folder) for share in shares]
        return together(bench, sessions, kernel_us, count + 1)


def lengths(bench: Bench) -> Sequence[int]:
    return bench.kernels_us or (VIRTUAL_KERNELS_US if bench.is_virtual else KERNELS_US)


def check_contention(bench: Bench) -> None:
    """Each within its share, and the GPU hardly less busy than without a gate; alone under `cap` no more than that."""
    for kernel_us in lengths(bench):
        alone = bench.run(bench.base(), "workload.py", "contend", str(kernel_us))
        for shares in VIRTUAL_SHARES if bench.is_virtual else SHARES:
            ungated = together(bench, [bench.base()] * len(shares), kernel_us, len(shares))
            seen = contend(bench, shares, kernel_us, "cap")
            parts = [percent_of(alone, {"busy": part}, "busy") for part in seen]
            busy = round(100 * sum(seen) / sum(ungated), 2) if sum(ungated) else 0.0
            error = max(abs(part - float(share)) for part, share in zip(parts, shares, strict=True))
            # On the simulated clock the processes do not begin at the same moment.
            is_busy = bench.is_virtual or busy >= MIN_BUSY_PERCENT
            bench.check(
                f"{', '.join(f'{share:g}' for share in shares)} % with kernels of {kernel_us} us",
                error <= SHARING_TOLERANCE and is_busy,
                percent_of_plain=parts,
                error_points=round(error, 2),
                percent_of_ungated=busy,
            )
        check_alone(bench, alone, kernel_us, "cap", ALONE - SHARING_TOLERANCE, ALONE + SHARING_TOLERANCE)


def check_alone(
    bench: Bench, plain: dict[str, float], kernel_us: int, sharing: Sharing, least: float, most: float
) -> None:
    [seen] = contend(bench, [ALONE], kernel_us, sharing)
    ratio = percent_of(plain, {"busy": seen}, "busy")
    bench.check(f"{ALONE} % alone, {sharing}, {kernel_us} us", least <= ratio <= most, percent_of_plain=ratio)


def check_burst(bench: Bench) -> None:
    """Alone, a session of a `burst` group has the whole GPU; an owner that wakes has its share back at once."""
    for kernel_us in lengths(bench):
        alone = bench.run(bench.base(), "workload.py", "contend", str(kernel_us))
        check_alone(bench, alone, kernel_us, "burst", MIN_BUSY_PERCENT, 200.0)
    with arbiter(bench, 2) as folder:
        owner, neighbour = (bench.session(each, sharing="burst", arbiter=folder) for each in (OWNER, NEIGHBOUR))
        settings = {"FGPU_SIM_PARTIES": "3", "FGPU_SECONDS": str(WAKE_SECONDS)}
        running = [
            bench.start(owner | settings, "workload.py", "wake"),
            bench.start(neighbour | settings, "workload.py", "contend", "1000"),
        ]
        found, _ = finished(bench, running)
    early = percent_of({"busy": OWNER / 100}, found, "busy")
    passed = 0 <= found.get("first_ms", -1) <= MAX_FIRST_MS and early >= MIN_EARLY_PERCENT
    first_ms = found.get("first_ms")
    bench.check("an owner gets its share back", passed, first_ms=first_ms, percent_of_share_in_200_ms=early)
