"""Bounds the logs of servers that the platform runs itself and that never rotate theirs."""

import shutil
from pathlib import Path
from typing import Final

from resources.amounts.units import MIB

MAX_BYTES: Final = 16 * MIB
_NAMES: Final = ("postgres/log", "redis/redis.log", "dockerd.log")  # below the var folder; each is appended to


def rotate(var_dir: Path, max_bytes: int = MAX_BYTES) -> None:
    """Move what is in each log that is too long to `<log>.1`, in place of what was there.

    It is copied and cut off, since the server holds it open; the lines of that moment may be lost. Raises OSError.
    """
    for log in (var_dir / name for name in _NAMES):
        if log.is_file() and log.stat().st_size > max_bytes:
            shutil.copy2(log, f"{log}.1")
            with log.open("r+b") as file:
                file.truncate()
