"""A report of the hardware protocol, as of a real GPU."""

import copy
from typing import Any, Final

from resources.models import Gpu

UUID: Final = "GPU-8f1c0000-0000-4000-8000-000000000001"
REPORT: Final[dict[str, Any]] = {
    "schema": 1,
    "date": "2026-11-27T12:00:00+00:00",
    "complete": True,
    "simulated": False,
    "version": "20261127.120000+abc",
    "hook": "0f" * 32,
    "driver": "580.159.04",
    "cuda": "13.0",
    "gpu": {"uuid": UUID, "name": "NVIDIA H200", "memory_bytes": 150 << 30, "context_bytes": 1, "sms": 132},
    "steps": [
        {"step": "memory", "state": "passed", "why": "", "seconds": 9},
        {"step": "jax", "state": "skipped", "why": "JAX is not installed", "seconds": 0},
    ],
    "checks": [],
    "figures": {
        "memory_exact": True,
        "share_error_points": 1.24,
        "idle_used_percent": 99.8,
        "handback_ms": 6.61,
        "launch_added_ns": 4.0,
        "torch_training_percent": 22.3,
        "jax_training_percent": None,
    },
}


def changed(**fields: Any) -> dict[str, Any]:
    """Return the report with other fields."""
    return {**copy.deepcopy(REPORT), **fields}


def report_of(gpu: Gpu) -> dict[str, Any]:
    """Return a report of this GPU."""
    return changed(simulated=gpu.is_simulated, gpu={**REPORT["gpu"], "uuid": gpu.uuid})
