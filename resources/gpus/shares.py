"""What a share of a GPU is in bytes, and whether it is also the most that a session gets of the time. Pure."""

from enum import StrEnum
from typing import Final


class Sharing(StrEnum):
    """What becomes of GPU time that the holder of a share leaves idle."""

    CAP = "cap"
    BURST = "burst"


SHARING_WORDS: Final[dict[Sharing, str]] = {
    Sharing.CAP: "never more GPU time than the share",
    Sharing.BURST: "GPU time that others leave idle may be used as well",
}


def share_bytes(gpu_memory_bytes: int, share_milli: int, gpu_milli: int) -> int:
    """Return the memory of a share of `share_milli` milli-fGPU of a device that has `gpu_milli` of them.

    Rounded down, so that the shares of a device never exceed its memory.
    """
    return gpu_memory_bytes * share_milli // gpu_milli


def share_milli_for(memory_bytes: int, gpu_memory_bytes: int, gpu_milli: int, *, divides: bool = True) -> int:
    """Return the smallest share of a device, in milli-fGPU, of which `share_bytes` is `memory_bytes` or more.

    All of a device that is not divided. The device must have so much.
    """
    return -(-memory_bytes * gpu_milli // gpu_memory_bytes) if divides else gpu_milli


def device_memory_for(session_bytes: int, asked_milli: int, gpu_milli: int) -> int:
    """Return the least memory of a device of which a session gets `session_bytes`: its share, or all of a whole one."""
    return -(-session_bytes * gpu_milli // min(asked_milli, gpu_milli))
