"""Sharing compute through NVIDIA's Multi-Process Service, for groups that chose it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fgpu.mounts import BindMount
from hostworker.enforcement.shares import share_percent
from hostworker.runtime_protocol import GpuGrant

MPS_PATH: Final = "/run/fgpu-mps"  # of the pipe folder in the container
DEV_SHM: Final = "/dev/shm"  # noqa: S108  # the name is what programs know
SHM: Final = "shm"  # in the pipe folder: what the daemon has as its /dev/shm


def mounts(folder: Path) -> tuple[BindMount, ...]:
    """Return the daemon's pipe folder, and its /dev/shm where the administrator has put that into the folder.

    Never the host's own /dev/shm: everybody's shared memory is there, the embedded PostgreSQL's too.
    """
    shared = folder / SHM
    more = [BindMount(source=shared, target=DEV_SHM, read_only=False)] if shared.is_dir() else []
    return BindMount(source=folder, target=MPS_PATH, read_only=False), *more


def environment(gpus: Sequence[GpuGrant]) -> dict[str, str]:
    """Return the variables that make CUDA a client of MPS with the share; of several devices the smallest counts."""
    percent = min(share_percent(gpu) for gpu in gpus)
    return {"CUDA_MPS_PIPE_DIRECTORY": MPS_PATH, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
