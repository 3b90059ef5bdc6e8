"""Rules of what users enter for scaling: what is out of range, by field. Pure."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from resources.amounts.units import FGPU_STEP, fgpu_text

MAX_RULES: Final = 10
MAX_REPLICAS: Final = 64
METRICS: Final = ("outstanding", "requests", "gpu", "query")
SLEEP_ACTIONS: Final = ("park", "end")
MIN_IDLE_SECONDS: Final = 60
RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "min_replicas": (1, MAX_REPLICAS),
    "max_replicas": (1, MAX_REPLICAS),
    "down_after_seconds": (10, 3600),
    "cooldown_seconds": (0, 3600),
    "idle_seconds": (MIN_IDLE_SECONDS, 7 * 24 * 3600),
    "wake_seconds": (0, 600),
}
_TARGETS: Final[Mapping[str, tuple[float, float]]] = {
    "outstanding": (0.1, 100_000),
    "requests": (0.01, 1_000_000),
    "gpu": (1, 100),
    "query": (1e-6, 1e12),
}


def settings_errors(values: Mapping[str, Any], *, base: int = 0, capacity: int = 0) -> dict[str, str]:
    """Return {field: message} for all settings of scaling together.

    `base` is the share of a replica's GPU, and `capacity` the whole of one, in milli-fGPU.
    """
    errors = {
        name: f"Choose a number from {low} to {high}."
        for name, (low, high) in RANGES.items()
        if values[name] is not None and not low <= values[name] <= high
    }
    most, least = values["max_replicas"], values["min_replicas"]
    if most is not None and least > most:
        errors.setdefault("max_replicas", f"Choose at least {least}, as many as always run.")
    if values["idle_seconds"] is not None and most is None:
        errors.setdefault("idle_seconds", "Only what is scaled by its load falls asleep: set max replicas, too.")
    if values["max_fgpu"] is not None and (error := _share_error(values["max_fgpu"], base, capacity, most)):
        errors["max_fgpu"] = error
    if values["idle_action"] not in SLEEP_ACTIONS:
        errors["idle_action"] = 'Write "park" or "end".'
    return errors


def _share_error(share: int, base: int, capacity: int, most: int | None) -> str:
    if most is None:
        return "Only what is scaled by its load grows: set max replicas, too."
    if not 0 < base < capacity:
        return "Only a replica with a part of one GPU grows."
    if not base <= share < capacity or share % FGPU_STEP:
        return f"Choose a part of one GPU, from {fgpu_text(base)} to {fgpu_text(capacity - FGPU_STEP)} fGPU."
    if share < 2 * base:  # less adds nothing that its rules count
        return f"Choose at least twice the share of a replica, {fgpu_text(2 * base)} fGPU."
    return ""


def rule_errors(
    *,
    metric: str,
    target: float,
    query: str,
    concurrency: int = 0,
    queue: int = 0,
    has_gpu: bool | None = None,
    has_prometheus: bool = True,
    offered: Collection[str] = (),
) -> dict[str, str]:
    """Return {field: message} for a rule of a deployment with these settings; what can never be met is an error."""
    if metric not in METRICS:
        return {"metric": f"Choose one of {', '.join(METRICS)}."}
    errors = {}
    low, high = _TARGETS[metric]
    if not low <= target <= high:  # which NaN is not
        errors["target"] = f"Choose a number from {low:g} to {high:g}."
    elif metric == "outstanding" and concurrency and target > concurrency + queue:
        errors["target"] = (
            f"This can never be met: a replica serves {concurrency} requests at once, and {queue} more may wait."
        )
    if metric == "gpu" and has_gpu is False:
        errors["metric"] = "This can never be met: its replicas have no share of a GPU."
    if metric == "query" and not has_prometheus:
        errors["metric"] = "This can never be met: the administrator has set up no Prometheus to ask."
    if "metric" not in errors and (error := _query_error(metric, query, offered)):
        errors["query"] = error
    return errors


def _query_error(metric: str, query: str, offered: Collection[str]) -> str:
    if metric != "query":
        return "Only a rule of the metric query has a query." if query else ""
    if not offered:
        return "The administrator offers no queries."
    return "" if query in offered else f"Choose one of {', '.join(sorted(offered))}."
