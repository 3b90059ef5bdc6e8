"""PyTorch, NCCL and JAX in a share: memory, the speed of products, and training against the whole GPU."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from typing import Any

from fgpu.hardware.common import Bench, SessionPlace, percent_of
from fgpu.hardware.shares import SM_TOLERANCE, is_held

MAX_BOOST = 1.25  # a GPU at its power limit clocks higher while it rests between turns: 1342 and 1936 MHz on an H100
JAX_PART = 0.75  # of the memory that JAX is shown, it takes this much by itself
SHARES = (100, 25)
TRAINED = 25  # percent
TORCH_ALLOCATORS = {  # setting, and what PyTorch is to say of itself: backend, and whether segments expand
    "native": ("backend:native", ["native", False]),
    "cudaMallocAsync": ("backend:cudaMallocAsync", ["cudaMallocAsync", False]),
    "expandable_segments": ("expandable_segments:True", ["native", True]),
}
CONDITIONS = {  # what is imported; what must hold then, and what it means where it does not
    "PyTorch": ("torch", "torch.cuda.is_available()", "is there, but without CUDA or without a GPU that it can use"),
    "NCCL": ("torch.distributed as d", "d.is_available() and d.is_nccl_available()", "is not in PyTorch there"),
    "JAX": ("jax", "jax.default_backend() == 'gpu'", "is there, but without CUDA or without a GPU that it can use"),
}


def needs(name: str) -> Callable[[Bench], str]:
    """Return what says why a framework cannot be measured here; "" where it can."""
    module, condition, otherwise = CONDITIONS[name]
    program = (
        f"import sys\ntry:\n  import {module}\nexcept ImportError:\n  sys.exit(3)\nsys.exit(0 if {condition} else 4)"
    )

    def problem(bench: Bench) -> str:
        if bench.simulated:
            return f"{name} needs a real GPU"
        command = [bench.python, "-c", program]
        try:
            done = subprocess.run(
                command, env=bench.base().environment, capture_output=True, text=True, check=False, timeout=120
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{bench.python}: {error}"
        if done.returncode in (0, 3, 4):
            return {0: "", 3: f"{name} is not installed in {bench.python}", 4: f"{name} {otherwise}"}[done.returncode]
        return f"{name} cannot be imported in {bench.python}: {(done.stderr.strip() or '?').splitlines()[-1]}"

    return problem


def is_share(ratio: float, percent: int) -> bool:
    """Whether a load at the GPU's power limit has its share of the time, by its part of the plain throughput."""
    return percent - SM_TOLERANCE <= ratio <= min(percent * MAX_BOOST, 100) + SM_TOLERANCE


def check_speed(bench: Bench, name: str, program: str, *arguments: str) -> None:
    plain = bench.run(bench.base(), program, "matmul", *arguments, python=bench.python)
    for percent in SHARES:
        seen = bench.run(bench.session(percent), program, "matmul", *arguments, python=bench.python)
        ratio = percent_of(plain, seen, "tflops")
        bench.check(
            f"{name} matmul at {percent} %{''.join(f': {each}' for each in arguments)}",
            is_share(ratio, percent),
            percent_of_plain=ratio,
            plain=plain,
            seen=seen,
        )


def check_training(bench: Bench, name: str, program: str, session: SessionPlace) -> None:
    """A small network learns in a share: its loss is finite and falls, and its steps are those of the share."""
    plain = bench.run(bench.base(), program, "train", python=bench.python)
    seen = bench.run(session, program, "train", python=bench.python)
    ratio = percent_of(plain, seen, "steps_per_second")
    passed = has_learnt(plain) and has_learnt(seen) and is_share(ratio, TRAINED)
    bench.check(f"{name} trains at {TRAINED} %", passed, training_percent=ratio, plain=plain, seen=seen)


def has_learnt(result: dict[str, Any]) -> bool:
    first, last = result.get("first_loss", math.nan), result.get("last_loss", math.nan)
    return math.isfinite(last) and last < first


def check_torch(bench: Bench) -> None:
    limit = bench.gpu["memory_bytes"] * 25 // 100
    for name, (setting, allocator) in TORCH_ALLOCATORS.items():
        place = bench.session(25) | {"PYTORCH_CUDA_ALLOC_CONF": setting}
        result = bench.run(place, "workload_torch.py", "memory", python=bench.python)
        held = is_held({**result, "exact_to": limit // 10}, limit) and result["allocator"] == allocator
        bench.check(f"PyTorch memory is capped: {name}", held, limit=limit, **result)
    check_training(bench, "PyTorch", "workload_torch.py", bench.session(TRAINED))
    for pattern in ("eager", "graph"):
        check_speed(bench, "PyTorch", "workload_torch.py", pattern)


def check_nccl(bench: Bench) -> None:
    """A process group of one: NCCL allocates and registers in ways of its own. Two on one GPU it refuses by itself."""
    result = bench.run(bench.session(25), "workload_torch.py", "nccl", python=bench.python)
    bench.check("NCCL works in a share", result.get("sum") == 1, **result)


def check_jax(bench: Bench) -> None:
    limit = bench.gpu["memory_bytes"] * 25 // 100
    place = bench.session(25) | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    result = bench.run(place, "workload_jax.py", "memory", python=bench.python)
    held = result.get("code") == 2 and 0.9 * JAX_PART * limit <= result["allocated"] <= JAX_PART * limit
    bench.check("JAX memory is capped", held, limit=limit, **result)
    check_training(bench, "JAX", "workload_jax.py", bench.session(TRAINED))
    check_speed(bench, "JAX", "workload_jax.py")
