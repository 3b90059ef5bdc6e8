"""Which files a session's container gets, and where. Files, not folders: a bound file can be neither removed nor
replaced inside the container, not even by root. The arbiter's socket alone is in a folder, bound read-only, since an
arbiter that is started anew makes a new one."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from fgpu.limits import ARBITER_FOLDER_PATH, GRANT_PATH, LIMITS_PATH, REGION_PATH

BUILD = Path(__file__).resolve().parent / "build"
HOOK_PATH = "/usr/local/lib/libfgpu.so"  # the name that build/ld.so.preload has in it
SIMULATED_CONFIG_PATH = "/run/fgpu-sim/gpus.conf"
SIMULATED_STATE_PATH = "/run/fgpu-sim/state"

# Where glibc looks without a cache and without variables: Debian and its kin, then Red Hat and its kin.
LIBRARY_FOLDERS = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64")


@dataclass(frozen=True)
class BindMount:
    """One bound file."""

    source: Path
    target: str
    read_only: bool = True
    propagation: str = "rprivate"


@dataclass(frozen=True)
class ArbiterFiles:
    """What a session and the arbiter of its host have in common; the session can write to neither."""

    grant: Path  # 4096 bytes on a tmpfs, zero before the first start
    socket_folder: Path


def hook_mounts(
    limits: Path, region: Path, build: Path = BUILD, arbiter: ArbiterFiles | None = None
) -> list[BindMount]:
    """What holds a session to its share: the files of `fgpu.limits.prepare`, the library, and the way to the arbiter.

    Without an arbiter each session is held to its share by itself, and what others leave idle is lost.
    """
    arbiter_mounts = (
        [
            BindMount(arbiter.grant, GRANT_PATH),
            BindMount(arbiter.socket_folder, ARBITER_FOLDER_PATH),
        ]
        if arbiter
        else []
    )
    return [
        *arbiter_mounts,
        BindMount(limits, LIMITS_PATH),
        BindMount(region, REGION_PATH, read_only=False),
        BindMount(build / "libfgpu.so", HOOK_PATH),
        BindMount(build / "ld.so.preload", "/etc/ld.so.preload"),
    ]


def simulated_mounts(config: Path, state: Path, build: Path = BUILD) -> list[BindMount]:
    """What a session on simulated GPUs sees instead of NVIDIA's driver.

    `config` lists the session's GPUs (`fgpu.simulated.format_config`); `state` is one file for all sessions of the
    host, writable for everybody.
    """
    libraries = [
        BindMount(build / "sim" / name, f"{folder}/{name}")
        for folder in LIBRARY_FOLDERS
        for name in ("libcuda.so.1", "libnvidia-ml.so.1")
    ]
    return [
        BindMount(config, SIMULATED_CONFIG_PATH),
        BindMount(state, SIMULATED_STATE_PATH, read_only=False),
        BindMount(build / "sim" / "nvidia-smi", "/usr/bin/nvidia-smi"),
        *libraries,
    ]
