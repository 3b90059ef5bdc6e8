"""The report of the protocol, as report.schema.json has it: `python -m fgpu.hardware.report FILE` prints tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("report.schema.json")
MAX_BYTES = 1 << 20  # more is no report
MEMORY_STEPS = frozenset({"views", "memory", "processes", "pinned"})
Check = Mapping[str, Any]


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Put the report in its place at once, so that nobody reads a part of it."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(report, indent=1) + "\n")
    temporary.replace(path)


def figures(steps: Sequence[Mapping[str, Any]], checks: Sequence[Check]) -> dict[str, float | bool | None]:
    """Return what steps and checks come to; None for what was not measured."""
    states = [step["state"] for step in steps if step["step"] in MEMORY_STEPS]
    are_all = states.count("passed") == len(MEMORY_STEPS)
    return {
        "memory_exact": False if {"failed", "timed out"} & {*states} else True if are_all else None,
        "share_error_points": _most(check.get("error_points") for check in checks),
        "idle_used_percent": _least(_of(checks, "burst", "percent_of_plain")),
        "handback_ms": _most(_of(checks, "burst", "first_ms")),
        "launch_added_ns": _most(_of(checks, "launches", "added_ns")),
        "torch_training_percent": _least(_of(checks, "pytorch", "training_percent")),
        "jax_training_percent": _least(_of(checks, "jax", "training_percent")),
    }


def _of(checks: Sequence[Check], step: str, figure: str) -> Iterable[Any]:
    return (check.get(figure) for check in checks if check["step"] == step)


def _most(values: Iterable[Any]) -> float | None:
    return max((float(value) for value in values if value is not None), default=None)


def _least(values: Iterable[Any]) -> float | None:
    return min((float(value) for value in values if value is not None), default=None)


def failed_steps(report: Mapping[str, Any]) -> list[str]:
    """Return the steps that failed, or took all of their time."""
    return [step["step"] for step in report["steps"] if step["state"] in ("failed", "timed out")]


def in_words(report: Mapping[str, Any]) -> list[str]:
    """Return the summary, a sentence a line."""
    found = report["figures"]
    sentences = {
        "memory_exact": "Memory is held to the byte." if found["memory_exact"] else "Memory is NOT held exactly.",
        "share_error_points": "Sessions at the same time got their shares within {} points.",
        "idle_used_percent": "Alone in a burst group a session of 25 % used {} % of the GPU.",
        "handback_ms": "An owner that woke had its first kernel after {} ms.",
        "launch_added_ns": "A launch costs {:+g} ns.",
        "torch_training_percent": "PyTorch trains at 25 % with {} % of the steps of the whole GPU.",
        "jax_training_percent": "JAX trains at 25 % with {} % of the steps of the whole GPU.",
    }
    lines = [text.format(found[name]) for name, text in sentences.items() if found[name] is not None]
    for step in report["steps"]:
        if step["state"] != "passed":
            lines.append(f"{step['step']}: {step['state']}{': ' if step['why'] else ''}{step['why']}")
    return lines


def tables(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown, for fgpu/README.md."""
    gpu = report["gpu"]
    simulated = " SIMULATED: no hardware is behind these figures." if report["simulated"] else ""
    head = (
        f"{gpu['name']} ({gpu['memory_bytes'] >> 20:,} MiB, {gpu['sms']} SMs; driver {report['driver']}, CUDA"
        f" {report['cuda']}; hook {report['hook'][:12]}, version {report['version'] or 'unknown'};"
        f" {report['date'][:10]})."
    )
    lines = [
        head + simulated,
        "",
        *(f"* {line}" for line in in_words(report)),
        "",
        "| step | check | | |",
        "|---|---|---|---|",
    ]
    for check in report["checks"]:
        figures_of = {name: value for name, value in check.items() if name not in ("check", "step", "passed")}
        listed = ", ".join(f"{name} {json.dumps(value)}" for name, value in figures_of.items()).replace("|", "/")
        lines.append(
            f"| {check['step']} | {check['check']} | {'passed' if check['passed'] else '**failed**'} | {listed} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(tables(json.loads(Path(sys.argv[1]).read_text())) + "\n")
