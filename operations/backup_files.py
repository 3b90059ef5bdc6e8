"""The files of backups in their folder."""

from datetime import datetime
from pathlib import Path
from typing import Final

PATTERN: Final = "gpuplatform-*.tar"


def backups_in(folder: Path) -> list[Path]:
    """Return the backups of the folder, the newest first."""
    return sorted(folder.glob(PATTERN), reverse=True)


def is_due(folder: Path, hours: int, now: datetime) -> bool:
    """Return whether the newest backup of the folder is older than so many hours; 0 hours: never."""
    newest = next(iter(backups_in(folder)), None)
    return hours > 0 and (newest is None or now.timestamp() - newest.stat().st_mtime >= hours * 3600)
