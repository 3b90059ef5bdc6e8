"""What one session gets of the GPU: what tools show it, its memory to the byte, and its part of the time."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

from fgpu.hardware import smi
from fgpu.hardware.common import CONTEXT_BYTES, ROOT, Bench, SessionPlace, percent_of, readline
from fgpu.hardware.workload import ALLOCATORS

SM_TOLERANCE = 5.0  # percentage points
OVERHEAD_TOLERANCE = 2.0  # percent
SHARES = (100, 50, 25)
PATTERNS = ("sync", "async", "graph", "tiny")
PINNED_BYTES = 1 << 30
ASK_NVML = """
import json, pynvml, sys
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
print(json.dumps({"total": pynvml.nvmlDeviceGetMemoryInfo(device).total}))
"""


def smi_program(bench: Bench) -> str | None:
    """Return the nvidia-smi of this machine, or the simulated one; None where there is none."""
    return str(ROOT / "build" / "sim" / "nvidia-smi") if bench.simulated else shutil.which("nvidia-smi")


def smi_total(bench: Bench, place: SessionPlace) -> int | None:
    """Return the MiB that nvidia-smi shows of the GPU in a session; None where it shows none."""
    program = smi_program(bench)
    query = [*place.command, program or "nvidia-smi", "--query-gpu=" + ",".join(smi.FIELDS), smi.FORMAT]
    done = subprocess.run(query, env=place.environment, capture_output=True, text=True, check=False)
    try:
        shown = {gpu.uuid: gpu.total_mib for gpu in smi.parse_gpus(done.stdout)}
    except smi.SmiError:
        return None
    return shown.get(bench.gpu["uuid"])


def check_views(bench: Bench) -> None:
    """nvidia-smi and NVML from Python show a quarter of the card; all entry points come from the hook."""
    share = bench.gpu["memory_bytes"] * 25 // 100
    expected = round(share / (1 << 20))  # as nvidia-smi rounds
    if smi_program(bench):
        shown = smi_total(bench, bench.session(25))
        bench.check("nvidia-smi shows the share", shown == expected, shown_mib=shown, expected_mib=expected)
    place = bench.session(25)
    query = [*place.command, bench.python, "-c", ASK_NVML, bench.gpu["uuid"]]
    done = subprocess.run(query, env=place.environment, capture_output=True, text=True, check=False)
    if "No module named" not in done.stderr:
        total = json.loads(done.stdout or "{}").get("total")
        bench.check("pynvml shows the share", total == share, shown=total, expected=share)
    astray = bench.run(bench.session(25), "workload.py", "routes").get("astray")
    bench.check("every entry point leads to the hook", astray == [], astray=astray)


def is_held(result: dict[str, Any], limit: int) -> bool:
    """Whether "out of memory" came where nothing more would fit, of which a context has its part."""
    allocated, most = result.get("allocated", 0), limit - CONTEXT_BYTES
    return result.get("code") == 2 and result["total"] == limit and most - result["exact_to"] < allocated <= most


def check_memory(bench: Bench) -> None:
    """Refused with "out of memory" at the share, exactly, whatever the allocator."""
    limit = bench.gpu["memory_bytes"] * 25 // 100
    for allocator in ALLOCATORS:
        result = bench.run(bench.session(25), "workload.py", "fill", allocator)
        bench.check(f"memory is capped: {allocator}", is_held(result, limit), limit=limit, **result)


def check_shared_cap(bench: Bench) -> None:
    """A second process of the session finds nothing left, until the first is killed.

    Contexts are not charged here: the second would not even get one.
    """
    session = bench.session(25, context_bytes=0).without("FGPU_SIM_CLOCK")  # it would wait for the sleeping process
    first = bench.start(session, "workload.py", "hold", "plain")
    held = readline(first).get("allocated", 0)
    second = bench.run(session, "workload.py", "fill", "plain")
    shared = held > 0 and held + second.get("allocated", held) <= second.get("total", 0)
    bench.check("two processes share the cap", shared, first=held, second=second)
    first.kill()
    first.communicate()
    third = bench.run(session, "workload.py", "fill", "plain")
    bench.check("a killed process gives its memory back", 0 < held == third.get("allocated"), third=third)


def check_pinned_memory(bench: Bench) -> None:
    """Page-locked host memory is refused beyond its bound; whether the kernel charges it to the cgroup is recorded."""
    result = bench.run(bench.session(25, pinned_bytes=PINNED_BYTES), "workload.py", "pin")
    allocated = result.get("allocated", 0)
    held = result.get("code") == 2 and 0.9 * PINNED_BYTES <= allocated <= PINNED_BYTES
    bench.check("page-locked memory is capped", held, limit=PINNED_BYTES, **result)


def check_share_of_time(bench: Bench) -> None:
    """Throughput against that of the same load without the hook."""
    for pattern in PATTERNS:
        plain = bench.run(bench.base(), "workload.py", "throughput", pattern)
        for percent in SHARES:
            seen = bench.run(bench.session(percent), "workload.py", "throughput", pattern)
            ratio = percent_of(plain, seen, "busy")
            bench.check(
                f"{percent} % of the SMs: {pattern}", abs(ratio - percent) <= SM_TOLERANCE, percent_of_plain=ratio
            )


def check_launches(bench: Bench) -> None:
    """An ungated session against none, alternating; the best of five, since other work only ever adds."""
    samples: dict[str, list[dict[str, float]]] = {"plain": [], "hooked": []}
    for _ in range(5):
        samples["plain"].append(bench.run(bench.base(), "workload.py", "cost"))
        samples["hooked"].append(bench.run(bench.session(100), "workload.py", "cost"))
    if any("failed" in sample for runs in samples.values() for sample in runs):
        bench.check("launches cost no more", passed=False, **samples)
        return
    figures = {
        key: {name: round(min(sample[key] for sample in runs)) for name, runs in samples.items()}
        for key in ("alloc_free_ns", "launch_ns")
    }
    added = figures["launch_ns"]["hooked"] - figures["launch_ns"]["plain"]
    percent = 100 * added / figures["launch_ns"]["plain"]
    passed = bench.simulated or percent <= OVERHEAD_TOLERANCE  # the simulated driver's launch costs next to nothing
    bench.check("launches cost no more", passed, added_ns=added, added_percent=round(percent, 2), **figures)
