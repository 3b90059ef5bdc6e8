"""Limits of the kernel that all sessions of a host share: raised beyond what the memory of sessions can hold.

The kernel counts these objects for a user, or for the whole machine, and all sessions have one user. The memory that
they take is charged to the container that makes them (SLAB_ACCOUNT and GFP_KERNEL_ACCOUNT in the kernel), so that a
session comes to its own memory limit first, and takes nothing that another needs. Pseudo-terminals are charged in part
only; each container may have TERMINALS of them.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from hostworker.privileged import mounts

SYSCTLS: Final = Path("/proc/sys")
MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
TERMINALS: Final = 512  # of one container
LIMITS: Final = {  # {sysctl: the least that it should be}; see proc_sys_fs(5), proc_sys_kernel(5)
    "fs.inotify.max_user_instances": MAX_INT,  # a kilobyte each
    "fs.inotify.max_user_watches": MAX_INT,
    "fs.epoll.max_user_watches": MAX_LONG // 256,  # the kernel takes no more than MAX_LONG / size of a watch
    "fs.pipe-user-pages-soft": MAX_INT,
    "fs.pipe-user-pages-hard": MAX_INT,
    "fs.aio-max-nr": MAX_INT,
    "fs.file-max": MAX_LONG,
    "kernel.pid_max": 2**22,  # PID_MAX_LIMIT: 1024 sessions with as many processes as one may have
    "kernel.threads-max": 2**22,
    "kernel.pty.max": 2**20,  # NR_UNIX98_PTY_MAX
}
UNLIMITED_AT_ZERO: Final = frozenset({"fs.pipe-user-pages-soft", "fs.pipe-user-pages-hard"})


def raise_limits() -> None:
    """Raise every limit that is lower and may be written; none is ever lowered. See `low_limits` for what remains."""
    for name, number in low_limits().items():
        with suppress(OSError):
            _path(name).write_text(str(max(number, LIMITS[name])))


def low_limits() -> dict[str, int]:
    """Return the limits that are lower than they should be; what the kernel does not have is left out."""
    found = {name: limit(name) for name in LIMITS}
    return {
        name: number
        for name, number in found.items()
        if number is not None and number < LIMITS[name] and not (number == 0 and name in UNLIMITED_AT_ZERO)
    }


def limit(name: str) -> int | None:
    """Return what a sysctl is set to; None where there is none."""
    try:
        return int(_path(name).read_text())
    except (OSError, ValueError):
        return None


def bound_terminals(main_pid: int) -> None:
    """Let the container of this process have no more than TERMINALS pseudo-terminals. Raises OSError."""
    options = mounts.super_options(main_pid, "/dev/pts", "devpts")
    if options is None:  # it has ended, or has none
        return
    others = [each for each in options.split(",") if each not in ("rw", "ro") and not each.startswith("max=")]
    mounts.remount(main_pid, "/dev/pts", ",".join([*others, f"max={TERMINALS}"]))


def _path(name: str) -> Path:
    return SYSCTLS / name.replace(".", os.sep)
