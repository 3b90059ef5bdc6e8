"""Enforcement tiers of GPU shares, and which tier a GPU of this host supports. No Django."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pynvml

CGROUP2: Final = Path("/sys/fs/cgroup/cgroup.controllers")  # exists with cgroup v2 only


class Tier(StrEnum):
    """What enforces a session's share of a GPU, strongest first; docs/fgpu.md compares them."""

    WHOLE = "whole"  # no other session on the GPU: nothing to enforce
    MIG = "mig"  # a hardware partition
    KERNEL = "kernel"  # memory by the driver, on the container's cgroup; compute by the hook
    HOOK_MPS = "hook+mps"  # memory by the hook; compute by MPS, among sessions that trust each other
    HOOK = "hook"  # both by the hook, monitored by the host's watchdog
    NONE = "none"  # this host cannot divide its GPUs: whole ones only


UNHOOKED: Final = frozenset({Tier.WHOLE, Tier.MIG})  # enforced outside the container
GATED: Final = frozenset({Tier.HOOK, Tier.KERNEL})  # whose compute the hook's gate divides
TIER_WORDS: Final[dict[Tier, str]] = {
    Tier.WHOLE: "the whole device, shared with nobody",
    Tier.MIG: "a partition cut by the hardware (MIG)",
    Tier.KERNEL: "memory limited by the driver, GPU time by the platform",
    Tier.HOOK_MPS: "memory limited by the platform, GPU time by NVIDIA's MPS",
    Tier.HOOK: "memory and GPU time limited by the platform, watched by the host",
    Tier.NONE: "this host lends whole GPUs only",
}


def share_tiers(parts: Sequence[tuple[int, str]], capacity: int) -> list[Tier]:
    """Return the tier of each (milli-fGPU, tier of the GPU) of one session; `capacity` is a whole GPU in milli-fGPU.

    A session that holds only whole GPUs needs no hook. With a part of a GPU, or of a MIG instance, the hook applies to
    all its GPUs, since it is loaded into every process of the container.
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
