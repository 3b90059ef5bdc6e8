"""The simulated GPUs of this host: the state that its sessions share, and their NVML for the host worker itself."""

import ctypes
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fgpu.simulated import SimulatedGpu, format_config
from hostworker.enforcement.programs import write_whole
from resources import procfs

logger = logging.getLogger(__name__)

STATE_BYTES: Final = 64 << 20  # more than `struct sim_state` takes (fgpu/sim/state.h)


def write_listing(path: Path, memory_bytes: Mapping[str, int]) -> None:
    """Write the file that tells the simulated driver which devices to show, {UUID: bytes of the whole device}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    described = [SimulatedGpu(uuid=uuid, name="Simulated GPU", memory=size) for uuid, size in memory_bytes.items()]
    write_whole(path, format_config(described).encode(), 0o444)


def shared_state(folder: Path) -> Path:
    """Return the file in which the simulated GPUs keep their memory and time, made if need be.

    One per boot: the lock in it means nothing to the processes of another, and may have been held when power failed.
    """
    path = folder / f"state-{procfs.boot_id()}"
    folder.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o666))
    path.chmod(0o666)
    for old in folder.glob("state-*"):
        if old != path:
            old.unlink(missing_ok=True)
    return path


def trim_state(folder: Path) -> None:
    """Cut what a session has written to the state beyond what the simulated driver uses of it."""
    for path in folder.glob("state-*"):
        if path.stat().st_size > STATE_BYTES:
            logger.warning("a session has written %s bytes to the state of the simulated GPUs", path.stat().st_size)
            os.truncate(path, STATE_BYTES)


def load_nvml(library: Path, folder: Path, memory_bytes: Mapping[str, int]) -> None:
    """Load the simulated NVML, showing the devices {UUID: bytes}, before any call loads a real one.

    The library is found again by its name, since the loader knows it by then.
    """
    listing = folder / "gpus.conf"
    write_listing(listing, memory_bytes)
    os.environ["FGPU_SIM_CONFIG"] = str(listing)
    os.environ["FGPU_SIM_STATE"] = str(shared_state(folder))
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
