"""A Docker runtime that kills its own process at one named moment: the worst that can happen to a host worker."""

import os
import signal
from pathlib import Path
from typing import Any

from hostworker.runtime.docker.images.pulls import DockerImages
from hostworker.runtime.docker.images.snapshots import DockerSnapshots
from hostworker.runtime.docker.runtime import DockerRuntime

CRASH_AT = "TEST_CRASH_AT"  # environment variable: "before create", "after stop", ...
CRASH_FILE = "TEST_CRASH_FILE"  # environment variable: a file with that, which may come while the process runs


class _Crashing:
    """Dies by SIGKILL before or after the method that is named, the first time it is called."""

    def __getattribute__(self, name: str) -> Any:
        """Wrap the method that the crash is about; everything else is the real thing."""
        moment, _, method = _named().partition(" ")
        attribute = super().__getattribute__(name)
        if name != method:
            return attribute

        def crash(*args: Any, **kwargs: Any) -> Any:
            if moment == "after":
                attribute(*args, **kwargs)
            if CRASH_FILE in os.environ:
                Path(os.environ[CRASH_FILE]).unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)

        return crash


def _named() -> str:
    """Return the moment of the crash; the file counts once, for whichever process meets it."""
    if CRASH_AT in os.environ:
        return os.environ[CRASH_AT]
    try:
        return Path(os.environ[CRASH_FILE]).read_text()
    except (KeyError, OSError):
        return ""


class CrashingImages(_Crashing, DockerImages):
    """Dies where images are looked for."""


class CrashingSnapshots(_Crashing, DockerSnapshots):
    """Dies where images are made."""


class CrashingRuntime(_Crashing, DockerRuntime):
    """Dies where containers are started and stopped, or images are made of them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Have an image engine that dies too."""
        super().__init__(*arguments, **named)
        self.images = CrashingImages(self._client, pull_seconds=60)
        self.image_engine = CrashingSnapshots(self._engine_url, self._owner)
