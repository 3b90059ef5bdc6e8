"""A Docker runtime that kills its own process at one named moment: the worst that can happen to a host worker."""

import os
import signal
from typing import Any

from hostworker.runtime.docker import DockerRuntime
from hostworker.runtime.docker_snapshots import DockerSnapshots

CRASH_AT = "TEST_CRASH_AT"  # environment variable: "before create", "after stop", ...


class _Crashing:
    """Dies by SIGKILL before or after the method that TEST_CRASH_AT names, the first time it is called."""

    def __getattribute__(self, name: str) -> Any:
        """Wrap the method that the crash is about; everything else is the real thing."""
        moment, _, method = os.environ.get(CRASH_AT, "").partition(" ")
        attribute = super().__getattribute__(name)
        if name != method:
            return attribute

        def crash(*args: Any, **kwargs: Any) -> Any:
            if moment == "after":
                attribute(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        return crash


class CrashingSnapshots(_Crashing, DockerSnapshots):
    """Dies where images are made."""


class CrashingRuntime(_Crashing, DockerRuntime):
    """Dies where containers are started and stopped, or images are made of them."""

    def image_engine(self) -> DockerSnapshots:
        """Return one that dies too."""
        return CrashingSnapshots(self._engine_url, self._owner)
