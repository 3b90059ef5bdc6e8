"""What only one test process at a time may do, such as building what all of them use."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

VAR: Final = Path(__file__).resolve().parent.parent / "var"


@contextmanager
def exclusive(what: str) -> Iterator[None]:
    """Hold the lock of this name for the block; wait while another process of this checkout holds it."""
    VAR.mkdir(exist_ok=True)
    with (VAR / f"test-{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
