"""What the kernel's log says of containers: which of them it has killed a process in, at their memory limit.

The engine tells the same, unless its own look at the cgroup fails, as where the host's cgroup mounts were changed. The
cgroup's own counter is gone with the container, and a sample of it from before does not hold the last kill. The log
stays.
"""

import os
import re
from pathlib import Path
from typing import Final

LOG: Final = Path("/dev/kmsg")
MAX_RECORD_BYTES: Final = 8192  # as the kernel bounds them
_KILL: Final = re.compile(rb";oom-kill:constraint=CONSTRAINT_MEMCG,[^\n]*?,oom_memcg=([^,\n]+)")


def was_killed_for_memory(container_id: str, log: Path = LOG) -> bool:
    """Return whether the log holds such a kill in the container; False where this process may not read it."""
    try:
        return any(container_id.encode() in group for group in _KILL.findall(_records(log)))
    except OSError:
        return False


def _records(log: Path) -> bytes:
    """Return all records that are there, without waiting for more."""
    found = []
    descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while record := _next(descriptor):
            found.append(record)
    finally:
        os.close(descriptor)
    return b"".join(found)


def _next(descriptor: int) -> bytes:
    """Return the next record, b"" after the last."""
    while True:
        try:
            return os.read(descriptor, MAX_RECORD_BYTES)
        except BlockingIOError:
            return b""
        except BrokenPipeError:
            continue  # it was overwritten meanwhile: the next read goes on at the oldest
