"""The container of the helper: its image, which is made here, and how the engine is asked to run it. Pure.

The image is empty but for links into /usr, which is the host's own. From there nsenter enters the mount namespace of
the worker, and runs the worker's own Python: so the helper sees the very files that the worker sees, and needs no image
with programs in it, no registry and no build.
"""

import io
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

REPOSITORY: Final = "gpuplatform/helper"
TAG: Final = "1"  # raise it when the content changes
IMAGE: Final = f"{REPOSITORY}:{TAG}"
HELPER_LABEL: Final = "gpuplatform.helper"
NAME_PREFIX: Final = "gp-helper-"  # + anything unique
NSENTER: Final = "/usr/bin/nsenter"
USR: Final = "/usr"
SERVER: Final = "hostworker.privileged.server"
PROJECT: Final = Path(__file__).resolve().parent.parent.parent
MEMORY_BYTES: Final = 256 << 20
PIDS_LIMIT: Final = 128
LINKED: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")  # as on every merged /usr

# Each for one thing that the helper does: enter the worker's mount namespace and containers' UTS namespaces (SYS_ADMIN,
# SYS_CHROOT), read /proc/<pid>/maps (SYS_PTRACE), load and write packet filter rules (SYS_MODULE, NET_ADMIN, NET_RAW),
# make the devices of clusters' networks (NET_ADMIN), own limits files and write to files of the worker's and the
# engine's (CHOWN, FOWNER, DAC_OVERRIDE), try a limit as the user of sessions (SETUID), write the maps of ids of a user
# namespace that has root's (SETUID, SETGID, SETFCAP).
CAPABILITIES: Final = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "NET_ADMIN",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETUID",
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_PTRACE",
)


def layer() -> bytes:
    """Return a tar of the image's content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        usr = tarfile.TarInfo(USR.lstrip("/"))
        usr.type, usr.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(usr)
        for name in LINKED:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    return buffer.getvalue()


def config(labels: Mapping[str, str], fgpu_folder: Path) -> dict[str, object]:
    """Return the body of the engine's create request for the helper of this very process.

    Its standard input and output are the only way to it, and when the input is closed it ends. `fgpu_folder` is where
    it may give files to root.
    """
    worker = os.getpid()
    return {
        "Image": IMAGE,
        "Entrypoint": [NSENTER],
        "Cmd": [
            f"--mount=/proc/{worker}/ns/mnt",
            "--",
            *(sys.executable, "-P", "-m", SERVER),
            *(str(worker), os.readlink("/proc/self/ns/mnt"), str(os.geteuid()), str(fgpu_folder)),
        ],
        "Env": [f"PYTHONPATH={PROJECT}", "PYTHONDONTWRITEBYTECODE=1", f"PATH={os.defpath}:/usr/sbin:/sbin", *_loader()],
        "Labels": {**labels, HELPER_LABEL: "1"},
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            "AutoRemove": True,
            "CapDrop": ["ALL"],
            "CapAdd": list(CAPABILITIES),
            "SecurityOpt": ["apparmor=unconfined", "label=disable", "seccomp=unconfined"],
            "PidMode": "host",
            "NetworkMode": "host",
            "UsernsMode": "host",  # where the engine maps root in containers to somebody else, as it would not be root
            "DeviceCgroupRules": ["c *:* rwm"],  # those of NVIDIA's driver
            "ReadonlyRootfs": True,
            "Mounts": [{"Type": "bind", "Source": USR, "Target": USR, "ReadOnly": True}],
            "Memory": MEMORY_BYTES,
            "MemorySwap": MEMORY_BYTES,
            "PidsLimit": PIDS_LIMIT,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
        },
    }


def _loader() -> list[str]:
    """Return what this process' Python may need to find its own libraries."""
    folders = os.environ.get("LD_LIBRARY_PATH")
    return [f"LD_LIBRARY_PATH={folders}"] if folders else []
