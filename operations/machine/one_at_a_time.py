"""Lets one set-up at a time work on a var folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from operations.machine.progress import SetupError


@contextmanager
def hold(lock_file: Path) -> Iterator[None]:
    """Hold the lock for the block; raise SetupError, naming the holder, where another process has it.

    The kernel releases it with the process, however that ends, so a stale file stands in nobody's way.
    """
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise SetupError(
                f"GPU Platform already runs here, or is being set up: process {holder}. Stop that one first, with "
                f"Ctrl-C in its terminal or `kill {holder}`."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
