"""Sharing compute through NVIDIA's Multi-Process Service, for groups that chose it. Pure."""

from collections.abc import Sequence
from typing import Final

from sessions.runtime.base import GpuGrant
from sessions.runtime.enforcement.shares import share_percent

MPS_PATH: Final = "/run/fgpu-mps"  # of the pipe folder in the container


def environment(gpus: Sequence[GpuGrant]) -> dict[str, str]:
    """Return the variables that make CUDA a client of MPS with the share; of several devices the smallest counts."""
    percent = min(share_percent(gpu) for gpu in gpus)
    return {"CUDA_MPS_PIPE_DIRECTORY": MPS_PATH, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
