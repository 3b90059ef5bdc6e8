"""Sessions that use one GPU at the same time, with turns from the arbiter: shares, what is lost, and idle time."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from fgpu.hardware.common import ROOT, Bench, finish, percent_of, run, start
from fgpu.limits import Sharing

SHARING_TOLERANCE = 3.0  # percentage points
MIN_SECONDS = 6.0  # what a session has saved up at its start is little of it
MIN_BUSY_PERCENT = 95.0  # percent of what is busy without a gate
SHARES: tuple[tuple[Decimal | int, ...], ...] = (
    *((100,), (50, 50), (25, 75)),
    *((25,) * 4, (Decimal("12.5"),) * 8),
)
KERNELS_US = (20, 1000, 10_000, 50_000)
DRY_SHARES: tuple[tuple[Decimal | int, ...], ...] = ((25, 75), (25,) * 4)
DRY_KERNELS_US = (1000,)
ALONE = 25  # percent, of a session that has no neighbours


@contextmanager
def arbiter(bench: Bench, parties: int) -> Iterator[Path]:
    """Run an arbiter on a folder of its own; on the simulated clock it is one of those that must have come."""
    folder = bench.folder / f"arbiter-{bench.sessions}"
    folder.mkdir()
    program = "test/arbiter" if bench.dry else f"arbiter-{platform.machine()}"
    command = [str(ROOT / "build" / program), "--dir", str(folder), "--build", "protocol"]
    environment = bench.base() | {"FGPU_SIM_PARTIES": str(parties + 1)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            process.stdout.readline()  # ready
            yield folder
        finally:
            process.terminate()


def together(bench: Bench, environments: Sequence[dict[str, str]], kernel_us: int, parties: int) -> list[float]:
    """Return what part of the time each kept the GPU busy, all at once; 0 for one that failed."""
    settings = {"FGPU_SIM_PARTIES": str(parties), "FGPU_SECONDS": str(max(MIN_SECONDS, bench.seconds))}
    running = [start(each | settings, "workload.py", "contend", str(kernel_us)) for each in environments]
    if not bench.dry:
        for process in running:  # each has its context by then
            assert process.stdout
            process.stdout.readline()
        for process in running:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
    return [float(finish(process).get("busy", 0)) for process in running]


def contend(bench: Bench, shares: Sequence[Decimal | int], kernel_us: int, sharing: Sharing) -> list[float]:
    count = len(shares)
    with arbiter(bench, count) as folder:
        sessions = [bench.session(share, sharing=sharing, arbiter=folder) for share in shares]
        return together(bench, sessions, kernel_us, count + 1)


def check_contention(bench: Bench) -> None:
    """Each within its share, and the GPU hardly less busy than without a gate; alone, a share is a cap or it is not."""
    for kernel_us in bench.kernels_us or (DRY_KERNELS_US if bench.dry else KERNELS_US):
        alone = run(bench.base(), "workload.py", "contend", str(kernel_us))
        for shares in DRY_SHARES if bench.dry else SHARES:
            ungated = together(bench, [bench.base()] * len(shares), kernel_us, len(shares))
            seen = contend(bench, shares, kernel_us, "cap")
            parts = [percent_of(alone, {"busy": part}, "busy") for part in seen]
            busy = round(100 * sum(seen) / sum(ungated), 2) if sum(ungated) else 0.0
            errors = [abs(part - float(share)) for part, share in zip(parts, shares, strict=True)]
            name = f"{len(shares)} of {float(shares[0]):g} % with kernels of {kernel_us} us"
            is_busy = bench.dry or busy >= MIN_BUSY_PERCENT  # the dry run's processes do not begin at the same moment
            bench.check(
                name,
                max(errors) <= SHARING_TOLERANCE and is_busy,
                percent_of_plain=parts,
                percent_of_ungated=busy,
            )
        for sharing, least in (("cap", ALONE - SHARING_TOLERANCE), ("burst", MIN_BUSY_PERCENT)):
            [seen_alone] = contend(bench, [ALONE], kernel_us, "burst" if sharing == "burst" else "cap")
            ratio = percent_of(alone, {"busy": seen_alone}, "busy")
            most = ALONE + SHARING_TOLERANCE if sharing == "cap" else 200.0
            bench.check(f"{ALONE} % alone, {sharing}, {kernel_us} us", least <= ratio <= most, percent_of_plain=ratio)
