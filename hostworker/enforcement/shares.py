"""From granted milli-fGPU to exact bytes, percent of the SMs, and turns in the gate's frame. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Final

from fgpu.limits import FRAME_MS, GpuLimit
from hostworker.runtime_protocol import GpuGrant
from resources.gpus.shares import share_bytes
from resources.gpus.tiers import Tier

HUNDREDTH: Final = Decimal("0.01")

Turn = tuple[int, int]  # start and length within the frame, in ms


def needs_hook(gpus: Sequence[GpuGrant]) -> bool:
    """Return whether the session holds a part of any device; the hook is then in force on all of them."""
    return any(gpu.share_milli < gpu.gpu_milli for gpu in gpus)


def share_memory(gpu: GpuGrant) -> int:
    """Return the bytes of the share."""
    return share_bytes(gpu.memory_bytes, gpu.share_milli, gpu.gpu_milli)


def share_percent(gpu: GpuGrant) -> Decimal:
    """Return the share of the SMs in percent with two decimals, rounded down."""
    return (Decimal(100) * gpu.share_milli / gpu.gpu_milli).quantize(HUNDREDTH, ROUND_DOWN)


def limits(gpus: Iterable[GpuGrant], starts: Mapping[str, int], context_memory: int) -> list[GpuLimit]:
    """Return what the hook shall allow of each device; `starts` are turns by UUID.

    `context_memory` is charged once per process on a real GPU, for what the driver itself takes; at most half a share.
    """
    return [
        GpuLimit(
            uuid=gpu.uuid,
            memory_bytes=share_memory(gpu),
            sm_percent=Decimal(100) if gpu.tier is Tier.HOOK_MPS else share_percent(gpu),
            phase_ms=starts.get(gpu.uuid, 0),
            context_bytes=0 if gpu.is_simulated else min(context_memory, share_memory(gpu) // 2),
        )
        for gpu in gpus
    ]


def turn_length(percent: Decimal) -> int:
    """Return the ms of the frame that a share of the SMs is, in percent, gets as its turn."""
    return round(FRAME_MS * percent / 100)


def free_turn(taken: Sequence[Turn], percent: Decimal) -> int:
    """Return the start of a turn that meets the turns `taken` as little as can be, the earliest of the best."""
    length = turn_length(percent)
    candidates = [0, *((start + ms) % FRAME_MS for start, ms in taken)]
    return min(candidates, key=lambda start: (sum(_overlap((start, length), turn) for turn in taken), start))


def _overlap(one: Turn, other: Turn) -> int:
    """Return the ms that two turns have in common on the ring of the frame."""
    shift = (other[0] - one[0]) % FRAME_MS
    ahead = min(max(0, one[1] - shift), other[1])
    around = min(max(0, other[1] - (FRAME_MS - shift)), one[1])
    return ahead + around
