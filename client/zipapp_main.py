"""Starts the command line of one file, from a copy in the user's cache where Python stores what it has compiled.

A running program locks its copy, whose time is that of the last start, so that those of versions before are removed.
"""

import os
import shutil
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path

ARCHIVE = Path(__file__).parent  # the file that was downloaded
LOCK = ".lock"
UNUSED_SECONDS = 30 * 24 * 3600


def unpacked(digest: str) -> Path:
    """Return where the program is: in the cache, or in the file itself where nothing can be written."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuplatform"
    place = cache / digest
    if is_used(place):
        return place
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = tempfile.mkdtemp(dir=cache)
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall(draft)  # of this very file
        os.rename(draft, place)
        remove_unused(cache)
    except OSError:
        if "draft" in locals():
            shutil.rmtree(draft, ignore_errors=True)  # another process was first, or the disk is full
    return place if is_used(place) else ARCHIVE


def is_used(place: Path) -> bool:
    """Use a copy until this process ends, and return whether it is there."""
    with suppress(ImportError, OSError):
        import fcntl

        os.utime(place)
        fcntl.flock(os.open(place / LOCK, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_SH)
    return place.is_dir()


def remove_unused(cache: Path) -> None:
    """Remove copies, and drafts of them, with which no program was started for long, and none runs."""
    for other in cache.iterdir():
        with suppress(ImportError, OSError):
            import fcntl

            if time.time() - other.stat().st_mtime < UNUSED_SECONDS:
                continue
            with (other / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other)


sys.path[0] = str(unpacked(zipfile.ZipFile(ARCHIVE).comment.decode()))

from gpuplatform_client.cli.app import main  # noqa: E402

main()
