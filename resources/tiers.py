"""How a GPU's shares are held apart: the tiers, and which of them a GPU of this host offers. No Django."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pynvml

CGROUP2: Final = Path("/sys/fs/cgroup/cgroup.controllers")  # there on hosts with cgroup v2 alone


class Tier(StrEnum):
    """What holds a session to its share of a GPU, from the strongest; docs/fgpu.md says what each is worth."""

    WHOLE = "whole"  # no other session is on the device: nothing to hold apart
    MIG = "mig"  # an instance that the hardware has cut
    KERNEL = "kernel"  # memory by the driver, on the container's cgroup; compute by the hook
    HOOK_MPS = "hook+mps"  # memory by the hook; compute by MPS, among sessions that trust each other
    HOOK = "hook"  # both by the hook, which the host's watchdog backs
    NONE = "none"  # this host cannot divide its GPUs: whole ones only


UNHOOKED: Final = frozenset({Tier.WHOLE, Tier.MIG})  # nothing in the container limits these
TIER_WORDS: Final[dict[Tier, str]] = {
    Tier.WHOLE: "the whole device, shared with nobody",
    Tier.MIG: "an instance cut by the hardware",
    Tier.KERNEL: "memory limited by the driver, compute by the hook",
    Tier.HOOK_MPS: "memory limited by the hook, compute by MPS",
    Tier.HOOK: "limited by the hook, watched by the host",
    Tier.NONE: "this host lends whole GPUs only",
}


def share_tiers(parts: Sequence[tuple[int, str]], capacity: int) -> list[Tier]:
    """Return the tier of each (milli-fGPU, tier of the GPU) that one session holds; `capacity` is a whole device.

    A session that holds all of all its devices needs no hook. One that also holds a part of a device, be it of a MIG
    instance, runs under the hook everywhere, since the hook is all or nothing within a container.
    """
    tiers = [Tier(tier) for _, tier in parts]
    if any(milli < capacity for milli, _ in parts):
        return [Tier.HOOK if tier is Tier.MIG else tier for tier in tiers]
    return [tier if tier is Tier.MIG else Tier.WHOLE for tier in tiers]


def detect(handle: Any, *, can_hook: bool) -> Tier:
    """Return the strongest tier for shares of the GPU behind an NVML handle."""
    if not can_hook:
        return Tier.NONE
    return Tier.KERNEL if CGROUP2.exists() and _has_memory_limits(handle) else Tier.HOOK


def _has_memory_limits(handle: Any) -> bool:
    """Return whether the driver limits GPU memory by cgroup (r615 and later); any error counts as no."""
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=bytes(CGROUP2.parent))
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    except pynvml.NVMLError:
        return False
    return True
