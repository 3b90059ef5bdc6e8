"""The hook on a real GPU, in one command and a few minutes, without Docker: fgpu/hardware/run [--dry-run].

Every check says what was measured and whether it passes; the report is printed, and written as JSON after each one, so
that what was measured before a failure is kept. It needs Python 3, the built test hook (make -C fgpu tests) and the
NVIDIA driver; the parts of PyTorch, JAX and NCCL run where these can be imported. The dry run does the same on the
simulated driver and its virtual clock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fgpu.hardware.common import CONTEXT_BYTES, HOOK, ROOT, Bench, percent_of, run, say, start
from fgpu.hardware.contention import check_contention
from fgpu.simulated import SimulatedGpu, format_config

Check = Callable[[Bench], None]

SIMULATED = SimulatedGpu(uuid="GPU-00000000-0000-4000-8000-000000000001", name="Simulated GPU 8 GiB", memory=8 << 30)
SM_TOLERANCE = 5.0  # percentage points
MAX_BOOST = 1.25  # a GPU at its power limit clocks higher while it rests between turns: 1342 and 1936 MHz on an H100
JAX_PART = 0.75  # of the memory that JAX is shown, it takes this much by itself
OVERHEAD_TOLERANCE = 2.0  # percent
SHARES = (100, 50, 25)
PATTERNS = ("sync", "async", "graph", "tiny")
PINNED_BYTES = 1 << 30
TORCH_ALLOCATORS = {  # setting, and what PyTorch is to say of itself: backend, and whether segments expand
    "native": ("backend:native", ["native", False]),
    "cudaMallocAsync": ("backend:cudaMallocAsync", ["cudaMallocAsync", False]),
    "expandable_segments": ("expandable_segments:True", ["native", True]),
}


def ask_smi(bench: Bench, environment: dict[str, str], field: str) -> list[str]:
    """Return what nvidia-smi says of each GPU; [] where there is no nvidia-smi."""
    smi = str(ROOT / "build" / "sim" / "nvidia-smi") if bench.dry else shutil.which("nvidia-smi")
    if smi is None:
        return []
    query = [smi, f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(query, env=environment, capture_output=True, text=True, check=False).stdout.split()


def look_around(bench: Bench) -> None:
    """Find out what is measured here; ends the program where there is no GPU."""
    found = run(bench.base(), "workload.py", "about")
    calibrated = {} if "failed" in found else run(bench.base(), "workload.py", "calibrate")
    if "rounds" not in calibrated:
        sys.exit("No GPU can be used here without the hook; nothing was measured.")
    bench.rounds = calibrated["rounds"]
    found["context_bytes"] = found["total"] - found["free"]  # with the driver's own, where nothing else uses the GPU
    found["driver"] = ask_smi(bench, bench.base(), "driver_version")[:1]
    found["hook"] = hashlib.sha256(HOOK.read_bytes()).hexdigest()
    found["date"] = datetime.now(UTC).date().isoformat()
    bench.gpu = found
    say(json.dumps(bench.gpu))


def check_views(bench: Bench) -> None:
    """nvidia-smi shows a quarter of the card; all entry points come from the hook."""
    shown = ask_smi(bench, bench.session(25), "memory.total")
    expected = round(bench.gpu["total"] * 25 // 100 / (1 << 20))  # as nvidia-smi rounds
    bench.check("nvidia-smi shows the share", shown[:1] == [str(expected)], shown=shown, expected_mib=expected)
    astray = run(bench.session(25), "workload.py", "routes").get("astray")
    bench.check("every entry point leads to the hook", astray == [], astray=astray)


def is_held(result: dict[str, Any], limit: int) -> bool:
    """Whether "out of memory" came within the last tenth of the share, of which a context has its part."""
    allocated, most = result.get("allocated", 0), limit - CONTEXT_BYTES
    return result.get("code") == 2 and result["total"] == limit and 0.9 * most <= allocated <= most


def check_memory(bench: Bench) -> None:
    """Refused with "out of memory" within the last tenth of the share, whatever the allocator."""
    limit = bench.gpu["total"] * 25 // 100
    for allocator in ("plain", "async", "vmm"):
        result = run(bench.session(25), "workload.py", "fill", allocator)
        bench.check(f"memory is capped: {allocator}", is_held(result, limit), limit=limit, **result)


def check_shared_cap(bench: Bench) -> None:
    """A second process of the session finds nothing left, until the first is killed.

    Contexts are not charged here: the second would not even get one.
    """
    session = bench.session(25, context_bytes=0)
    session.pop("FGPU_SIM_CLOCK", None)  # its clock would wait for the sleeping process
    first = start(session, "workload.py", "hold", "plain")
    held = json.loads((first.stdout.readline() if first.stdout else "") or "{}").get("allocated", 0)
    second = run(session, "workload.py", "fill", "plain")
    shared = held > 0 and held + second.get("allocated", held) <= second.get("total", 0)
    bench.check("two processes share the cap", shared, first=held, second=second)
    first.kill()
    first.communicate()
    third = run(session, "workload.py", "fill", "plain")
    bench.check("a killed process gives its memory back", 0 < held == third.get("allocated"), third=third)


def check_pinned_memory(bench: Bench) -> None:
    """Page-locked host memory is refused beyond its bound; whether the kernel charges it to the cgroup is recorded."""
    result = run(bench.session(25, pinned_bytes=PINNED_BYTES), "workload.py", "pin")
    allocated = result.get("allocated", 0)
    held = result.get("code") == 2 and 0.9 * PINNED_BYTES <= allocated <= PINNED_BYTES
    bench.check("page-locked memory is capped", held, limit=PINNED_BYTES, **result)


def check_share_of_time(bench: Bench) -> None:
    """Throughput against that of the same load without the hook."""
    for pattern in PATTERNS:
        plain = run(bench.base(), "workload.py", "throughput", pattern)
        for percent in SHARES:
            seen = run(bench.session(percent), "workload.py", "throughput", pattern)
            ratio = percent_of(plain, seen, "busy")
            bench.check(
                f"{percent} % of the SMs: {pattern}", abs(ratio - percent) <= SM_TOLERANCE, percent_of_plain=ratio
            )


def check_overhead(bench: Bench) -> None:
    """An ungated session against none, alternating; the best of five, since other work only ever adds."""
    samples: dict[str, list[dict[str, float]]] = {"plain": [], "hooked": []}
    for _ in range(5):
        samples["plain"].append(run(bench.base(), "workload.py", "cost"))
        samples["hooked"].append(run(bench.session(100), "workload.py", "cost"))
    if any("failed" in sample for runs in samples.values() for sample in runs):
        bench.check("launches cost no more", passed=False, **samples)
        return
    figures = {
        key: {name: round(min(sample[key] for sample in runs)) for name, runs in samples.items()}
        for key in ("alloc_free_ns", "launch_ns")
    }
    added = 100 * (figures["launch_ns"]["hooked"] / figures["launch_ns"]["plain"] - 1)
    passed = bench.dry or added <= OVERHEAD_TOLERANCE  # the simulated driver's launch costs next to nothing
    bench.check("launches cost no more", passed, added_percent=round(added, 2), **figures)


def is_share(ratio: float, percent: int) -> bool:
    """Whether a load at the GPU's power limit has its share of the time, by its part of the plain throughput."""
    return percent - SM_TOLERANCE <= ratio <= min(percent * MAX_BOOST, 100) + SM_TOLERANCE


def check_torch(bench: Bench) -> None:
    limit = bench.gpu["total"] * 25 // 100
    for name, (setting, allocator) in TORCH_ALLOCATORS.items():
        environment = bench.session(25) | {"PYTORCH_CUDA_ALLOC_CONF": setting}
        result = run(environment, "workload_torch.py", "memory")
        held = is_held(result, limit) and result["allocator"] == allocator
        bench.check(f"PyTorch memory is capped: {name}", held, limit=limit, **result)
    for pattern in ("eager", "graph"):
        plain = run(bench.base(), "workload_torch.py", "matmul", pattern)
        for percent in SHARES:
            seen = run(bench.session(percent), "workload_torch.py", "matmul", pattern)
            ratio = percent_of(plain, seen, "tflops")
            passed = is_share(ratio, percent)
            bench.check(
                f"PyTorch matmul at {percent} %: {pattern}", passed, percent_of_plain=ratio, plain=plain, seen=seen
            )


def check_nccl(bench: Bench) -> None:
    """A process group of one: NCCL allocates and registers in ways of its own. Two on one GPU it refuses by itself."""
    result = run(bench.session(25), "workload_torch.py", "nccl")
    bench.check("NCCL works in a share", result.get("sum") == 1, **result)


def check_jax(bench: Bench) -> None:
    limit = bench.gpu["total"] * 25 // 100
    environment = bench.session(25) | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    result = run(environment, "workload_jax.py", "memory")
    held = result.get("code") == 2 and 0.9 * JAX_PART * limit <= result["allocated"] <= JAX_PART * limit
    bench.check("JAX memory is capped", held, limit=limit, **result)
    plain = run(bench.base(), "workload_jax.py", "matmul")
    for percent in SHARES:
        seen = run(bench.session(percent), "workload_jax.py", "matmul")
        ratio = percent_of(plain, seen, "tflops")
        passed = is_share(ratio, percent)
        bench.check(f"JAX matmul at {percent} %", passed, percent_of_plain=ratio, plain=plain, seen=seen)


FRAMEWORKS = {
    "PyTorch": ("import torch; assert torch.cuda.is_available()", check_torch),
    "NCCL": (
        "import torch.distributed as d, torch; assert torch.cuda.is_available() and d.is_nccl_available()",
        check_nccl,
    ),
    "JAX": ("import jax; assert jax.default_backend() == 'gpu'", check_jax),
}


def is_usable(condition: str) -> bool:
    command = [sys.executable, "-c", condition]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def if_usable(name: str, condition: str, check: Check) -> Check:
    """Return the check of a framework, made where it can be imported and finds the GPU; never in the dry run."""

    def checked(bench: Bench) -> None:
        if not bench.dry and is_usable(condition):
            check(bench)
        else:
            say(f"{name}: not measured")

    return checked


PARTS: dict[str, Check] = {
    "views": check_views,
    "memory": check_memory,
    "processes": check_shared_cap,
    "pinned": check_pinned_memory,
    "time": check_share_of_time,
    "contention": check_contention,
    "overhead": check_overhead,
    **{name.lower(): if_usable(name, condition, check) for name, (condition, check) in FRAMEWORKS.items()},
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the hook on this machine's first GPU.")
    parser.add_argument("--dry-run", action="store_true", help="on the simulated driver, with its virtual clock")
    parser.add_argument("--out", type=Path, default=Path("var/fgpu-hardware"), help="where report.json goes")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement of speed")
    parser.add_argument("--kernels", type=int, nargs="+", metavar="US", help="let kernels of these lengths contend")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these parts alone")
    options = parser.parse_args()
    if not HOOK.exists():
        sys.exit("Build first: make -C fgpu tests")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fgpu-hardware-") as folder:
        bench = Bench(Path(folder), options.dry_run, options.seconds, out=options.out, kernels_us=options.kernels)
        (bench.folder / "gpus.conf").write_text(format_config([SIMULATED]))
        look_around(bench)
        for part in options.only or PARTS:
            PARTS[part](bench)
    return 0 if all(check["passed"] for check in bench.checks) else 1


if __name__ == "__main__":
    sys.exit(main())
