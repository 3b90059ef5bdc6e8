"""Which sessions exceed their shares of GPUs, from what the host observes. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from resources.units import size_text
from sessions.lifecycle import Reason

TOLERANCE_PERCENT: Final = 5  # what the driver rounds up, and what changes between two polls

SessionDevice = tuple[str, str]  # session id, GPU UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What the processes of one session do on one device."""

    memory_bytes: int
    processes: int
    unhooked: int = 0  # of the processes, those that run without the hook


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAllowance:
    """What a session may do on one device of its lease."""

    memory_bytes: int
    is_hooked: bool


NOTHING: Final = GpuAllowance(memory_bytes=0, is_hooked=False)  # on a device that it does not hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Sessions to stop, as {session id: (reason, explanation)}, and devices whose next excess is a violation."""

    violations: Mapping[str, tuple[Reason, str]]
    warned: frozenset[SessionDevice]


def assess(
    uses: Mapping[SessionDevice, GpuUse],
    allowances: Mapping[SessionDevice, GpuAllowance],
    warned: Collection[SessionDevice],
    context_memory: int,
) -> Assessment:
    """Return the assessment of the current use; `warned` are the devices in excess at the previous poll.

    A process without the hook ends its session at once. An excess of memory does when it lasts for two polls;
    `context_memory` bytes per process are allowed for the driver's own use.
    """
    violations: dict[str, tuple[Reason, str]] = {}
    in_excess = set()
    for place, use in uses.items():
        allowed = allowances.get(place, NOTHING)
        if allowed.is_hooked and use.unhooked:
            violations[place[0]] = (
                Reason.HOOK_BYPASSED,
                "A process of it used the GPU without the hook that limits it.",
            )
        elif _is_excess(use, allowed, context_memory):
            in_excess.add(place)
            if place in warned:
                used, share = size_text(use.memory_bytes), size_text(allowed.memory_bytes)
                words = f"It used {used} of GPU memory; its share is {share}."
                violations.setdefault(place[0], (Reason.GPU_LIMIT_EXCEEDED, words))
    return Assessment(violations=violations, warned=frozenset(in_excess))


def _is_excess(use: GpuUse, allowed: GpuAllowance, context_memory: int) -> bool:
    return use.memory_bytes > allowed.memory_bytes * (100 + TOLERANCE_PERCENT) // 100 + use.processes * context_memory
