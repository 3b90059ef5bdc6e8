"""Counts what containers hold of the kernel's objects that it limits for all sessions of a host together.

It is bounded: of what a container has open, DESCRIPTORS are looked at, of its processes in random order, and the counts
extrapolated. Needs root, for the descriptors of others and to be another user for a moment.
"""

import errno
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from statistics import median_low
from typing import Final

from folders.files.descriptors import CONTAINER_UID
from hostworker.privileged import kernel_limits, processes
from hostworker.privileged.base import KernelUse
from resources import procfs

TASKS: Final = "processes and threads"
INSTANCES: Final = "inotify instances"
WATCHES: Final = "inotify watches"
EPOLL_WATCHES: Final = "epoll watches"
TERMINALS: Final = "pseudo-terminals"
FILES: Final = "open files"
IN_FLIGHT: Final = "descriptors in flight"  # sent through Unix sockets and not received yet; unix(7), ETOOMANYREFS

DESCRIPTORS: Final = 20_000  # looked at in one container
NEARLY: Final = 0.75  # of the limit of descriptors in flight; the kernel shows no sum, and below this none are counted
HIDDEN: Final = 253 * 278  # that a socket may hold: as many messages as its buffer takes, of SCM_MAX_FD each
PROBE_SECONDS: Final = 10
PROBE: Final = """
import os, resource, socket, sys
most, user = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
os.setuid(user)
ends = socket.socketpair()
try:
    socket.send_fds(ends[0], [b"x"], [0])
except OSError as error:
    sys.exit(error.errno)
"""
_NSPID: Final = re.compile(r"^NSpid:.*\t(\d+)$", re.MULTILINE)
_THREADS: Final = re.compile(r"^Threads:\t(\d+)", re.MULTILINE)
_MAX_FILES: Final = re.compile(r"^Max open files +(\d+)", re.MULTILINE)
_MAX_PROCESSES: Final = re.compile(r"^Max processes +(\d+)", re.MULTILINE)
_SENT: Final = re.compile(r"^scm_fds: (\d+)", re.MULTILINE)


def kernel_use(containers: Collection[str]) -> KernelUse:
    """Return what these containers, by id, hold now; what ends meanwhile may be left out."""
    found = _processes(containers)
    mains = [main for pids in found.values() if (main := _main(pids))]
    if not mains:
        return KernelUse()
    limits = _limits(mains)
    held = {container: _held(pids) for container, pids in found.items()}
    if not in_flight_exceed(int(NEARLY * limits[IN_FLIGHT])):
        for counts in held.values():
            counts.pop(IN_FLIGHT, None)
    return KernelUse(held=held, limits=limits)


def in_flight_exceed(number: int, user: int = CONTAINER_UID) -> bool:
    """Return whether the user has more than this number of descriptors in flight: sends one, as that user."""
    command = [sys.executable, "-I", "-S", "-c", PROBE, str(number), str(user)]
    done = subprocess.run(command, check=False, timeout=PROBE_SECONDS, stderr=subprocess.DEVNULL)
    return done.returncode == errno.ETOOMANYREFS


def _processes(containers: Collection[str]) -> dict[str, list[int]]:
    found = defaultdict(list)
    for pid in procfs.pids():
        if (container := processes.container_of(pid)) in containers:
            found[container].append(pid)
    return dict(found)


def _main(pids: Iterable[int]) -> int | None:
    """Return the container's first process; None where it has ended."""
    return next((pid for pid in sorted(pids) if _number(_NSPID, procfs.text(f"{pid}/status")) == 1), None)


def _limits(mains: Iterable[int]) -> dict[str, int]:
    """Return the limits; of a process' own, the median of all containers, as each may lower what it has."""
    texts = [procfs.text(f"{main}/limits") for main in mains]
    found = {
        TASKS: _least(kernel_limits.limit("kernel.pid_max"), kernel_limits.limit("kernel.threads-max")),
        IN_FLIGHT: _median(_MAX_FILES, texts),
        INSTANCES: kernel_limits.limit("fs.inotify.max_user_instances"),
        WATCHES: kernel_limits.limit("fs.inotify.max_user_watches"),
        EPOLL_WATCHES: kernel_limits.limit("fs.epoll.max_user_watches"),
        TERMINALS: kernel_limits.limit("kernel.pty.max"),
        FILES: kernel_limits.limit("fs.file-max"),
    }
    found[TASKS] = _least(found[TASKS], _median(_MAX_PROCESSES, texts))
    return {kind: number for kind, number in found.items() if number is not None}


def _median(pattern: re.Pattern[str], texts: Iterable[str]) -> int | None:
    numbers = [number for text in texts if (number := _number(pattern, text)) is not None]
    return median_low(numbers) if numbers else None


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _held(pids: Sequence[int]) -> dict[str, int]:
    """Return what the processes of a container hold."""
    seen, sent = Counter[str](), dict[str, int]()  # by socket: forked processes share them
    tasks = sum(_number(_THREADS, procfs.text(f"{pid}/status")) or 0 for pid in pids)
    looked_at = 0
    for pid, descriptor in islice(_open(random.sample(pids, len(pids))), DESCRIPTORS):
        looked_at += 1
        with suppress(OSError):  # closed meanwhile
            _note(seen, sent, os.readlink(procfs.PROC / f"{pid}/fd/{descriptor}"), f"{pid}/fdinfo/{descriptor}")
    files = looked_at if looked_at < DESCRIPTORS else max(looked_at, sum(map(_open_files, pids)))
    scale = files / looked_at if looked_at else 1
    hidden = max(0, _unix_sockets(pids[0]) - round(len(sent) * scale))
    seen[IN_FLIGHT] = sum(sent.values())
    counts = {kind: round(number * scale) for kind, number in seen.items()}
    return {**counts, TASKS: tasks, FILES: files, IN_FLIGHT: counts[IN_FLIGHT] + HIDDEN * hidden}


def _note(seen: Counter[str], sent: dict[str, int], target: str, info: str) -> None:
    """Count the descriptor of this target, whose fdinfo is at `info`; see proc_pid_fdinfo(5)."""
    if target == "anon_inode:inotify":
        seen[INSTANCES] += 1
        seen[WATCHES] += _lines(info, "inotify ")
    elif target == "anon_inode:[eventpoll]":
        seen[EPOLL_WATCHES] += _lines(info, "tfd:")
    elif target.endswith("/ptmx"):
        seen[TERMINALS] += 1
    elif target.startswith("socket:") and (number := _number(_SENT, procfs.text(info))) is not None:
        sent[target] = number


def _open(pids: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield (process, descriptor) of all that these processes have open."""
    for pid in pids:
        with suppress(OSError), os.scandir(procfs.PROC / f"{pid}/fd") as entries:
            yield from ((pid, entry.name) for entry in entries)


def _open_files(pid: int) -> int:
    """Return how many files the process has open: the size of the folder since Linux 6.2, 0 before that."""
    with suppress(OSError):
        return (procfs.PROC / f"{pid}/fd").stat().st_size
    return 0


def _unix_sockets(pid: int) -> int:
    """Return how many Unix sockets there are in the process' network namespace, but for those that nobody accepted."""
    sockets = islice(procfs.lines(f"{pid}/net/unix"), 1, None)
    return sum(len(fields := line.split()) > 6 and fields[6] != "0" for line in sockets)


def _lines(path: str, beginning: str) -> int:
    """Return how many lines of a file of /proc begin so, of its first bytes."""
    return sum(line.startswith(beginning) for line in procfs.lines(path))


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None
