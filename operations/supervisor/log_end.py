"""The end of a log, which may have grown for years."""

from pathlib import Path
from typing import Final

MAX_BYTES: Final = 2**20


def read(log: Path) -> str:
    """Return the last MAX_BYTES of a log. Raises OSError."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MAX_BYTES))
        return file.read().decode(errors="replace")
