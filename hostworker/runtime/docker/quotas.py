"""Whether the Docker Engine can bound what a container writes: overlay2 on XFS with project quotas."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from resources import procfs

QUOTA_OPTIONS: Final = frozenset({"prjquota", "pquota"})
REFUSED: Final = "--storage-opt"  # how the engine begins where it cannot
SNAPSHOTTER: Final = "io.containerd.snapshotter"  # the type of driver of engines whose images containerd keeps
CONTAINERD_ROOT: Final = Path("/var/lib/containerd")  # its default, which the engine does not tell
DOCKER_ROOT: Final = Path("/var/lib/docker")


def quota_problem(info: Mapping[str, Any], *, is_here: bool) -> str:
    """Return why the engine that reports `info` cannot bound a writable layer; "" where it can.

    `is_here` says that it runs on this machine, whose mounts are then looked at too.
    """
    driver, facts = str(info.get("Driver")), dict(info.get("DriverStatus") or ())
    file_system = str(facts.get("Backing Filesystem"))
    if driver != "overlay2" or file_system != "xfs":
        return f"the engine's storage is {driver} on {file_system}, and only overlay2 on xfs has quotas"
    root = str(info.get("DockerRootDir"))
    if is_here and (options := _mount_options(Path(root))) and not options & QUOTA_OPTIONS:
        return f"the file system of {root} is not mounted with pquota"
    return ""


def storage_root(info: Mapping[str, Any], containerd: Path = CONTAINERD_ROOT) -> Path:
    """Return where an engine of this machine that reports `info` keeps images and what containers write.

    From Docker 29 on new installations have that at containerd's, which may be another file system.
    """
    facts = dict(info.get("DriverStatus") or ())
    if str(facts.get("driver-type")).startswith(SNAPSHOTTER) and containerd.is_dir():
        return containerd
    return Path(info.get("DockerRootDir") or DOCKER_ROOT)


def is_refusal(message: str) -> bool:
    """Return whether the engine's error message says that it cannot bound what the container writes."""
    return REFUSED in message


def _mount_options(folder: Path) -> frozenset[str]:
    """Return the options of the file system that the folder is on; empty where that is not known."""
    found = {Path(mount.point): frozenset(mount.super_options.split(",")) for mount in procfs.mounts()}
    holding = [place for place in found if folder.is_relative_to(place)]
    return found[max(holding, key=lambda place: len(place.parts))] if holding else frozenset()
