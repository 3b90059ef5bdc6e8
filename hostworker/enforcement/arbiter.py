"""The arbiter of this host's GPUs: the process that gives sessions their turns. Started, watched and adopted here.

It outlives the host worker, as sessions do. While none runs, each session keeps to its share by itself.
"""

import fcntl
import logging
import os
import re
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hostworker.enforcement.arbiter_folder import LOCK, ArbiterFolder, Charge, own_folder
from hostworker.enforcement.programs import Programs, ProgramsMissingError
from resources import procfs

logger = logging.getLogger(__name__)

LOG: Final = "log"
LOG_BYTES: Final = 1 << 20
STALE_NS: Final = 5 * 10**9  # an arbiter that has not written its beat for so long hangs
MAX_PAUSE_SECONDS: Final = 60.0  # between starts of one that keeps ending
STEADY_SECONDS: Final = 60.0  # after which an end is not one of a row
_PAGE_HEAD: Final = struct.Struct("=IIQ")  # magic, version, beat: fgpu/src/grant.h
_OWNER: Final = re.compile(r"pid=([0-9]+) build=(\S*)")

SessionDevice = tuple[str, str]  # session id, GPU UUID


@dataclass(frozen=True, slots=True)
class RunningArbiter:
    """An arbiter as its lock file tells it."""

    pid: int
    build: str


class Arbiter:
    """The arbiter of one host; `clock` is CLOCK_MONOTONIC, in nanoseconds. Safe to use from many threads."""

    def __init__(self, programs: Programs, folder: ArbiterFolder, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.folder = folder
        self._programs = programs
        self._clock = clock
        self._lock = threading.Lock()  # guards what follows
        self._process: subprocess.Popen[bytes] | None = None  # of this worker's own start
        self._started_at = 0.0
        self._pause_seconds = 0.0
        self._problem = ""

    def hold(self) -> None:
        """Have an arbiter of the present build run where there is a session for it; adopt one that runs already."""
        with self._lock:
            self._reap()
            if not self.folder.keys():
                return
            try:
                self._hold(*self._programs.installed_arbiter())
            except (ProgramsMissingError, OSError) as error:
                self._note(f"GPU time of this host's sessions is not arbitrated: {error}")

    def _hold(self, program: Path, build: str) -> None:
        found = self.running()
        if found and self._hangs():
            logger.error("the arbiter of this host's GPUs (pid %d) hangs and is killed", found.pid)
            self._signal(found, signal.SIGKILL)
        elif found and found.build != build:
            logger.info("the arbiter of this host's GPUs (pid %d) is of another build and is replaced", found.pid)
            self._signal(found, signal.SIGTERM)
        elif found is None and time.monotonic() - self._started_at >= self._pause_seconds:
            self._start(program, build)

    def set_sharing(self, sharing: str) -> None:
        """Have every session's lease say what becomes of idle time.

        An arbiter reads a lease once, so one that runs is ended where a lease has changed; `hold` starts the next.
        """
        with self._lock:
            if self.folder.set_sharing(sharing) and (found := self.running()):
                self._signal(found, signal.SIGTERM)

    def running(self) -> RunningArbiter | None:
        """Return the arbiter that holds the lock; None where none does."""
        try:
            with (self.folder.root / LOCK).open("rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    match = _OWNER.match(lock.read(200).decode(errors="replace"))
                    return RunningArbiter(int(match[1]), match[2]) if match else None
        except OSError:
            pass
        return None

    def charged(self) -> Mapping[SessionDevice, Charge] | None:
        """Return what was charged to each session on each GPU so far; None where no arbiter runs."""
        return self.folder.charged() if self.running() else None

    def end(self) -> None:
        """End the arbiter unless sessions still need it; called as the worker ends."""
        with self._lock:
            if self.folder.keys():
                return
            if found := self.running():
                self._signal(found, signal.SIGTERM)
            if self._process:
                self._process.terminate()  # also where it has yet to say that it runs
                self._process.wait()
            shutil.rmtree(self.folder.root, ignore_errors=True)

    def _start(self, program: Path, build: str) -> None:
        own_folder(self.folder.root)
        log = self.folder.root / LOG
        with log.open("ab") as output:
            if output.tell() > LOG_BYTES:
                output.truncate(0)
            self._process = subprocess.Popen(
                [program, "--dir", self.folder.root, "--build", build],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )
        self._pause_seconds = min(max(1.0, 2 * self._pause_seconds), MAX_PAUSE_SECONDS)
        self._started_at, self._problem = time.monotonic(), ""
        logger.info("the arbiter of this host's GPUs runs: pid %d", self._process.pid)

    def _reap(self) -> None:
        """Note the end of the arbiter that this worker started; one that ran for long may be started again at once."""
        if self._process is None or (code := self._process.poll()) is None:
            return
        if time.monotonic() - self._started_at > STEADY_SECONDS:
            self._pause_seconds = 0.0
        self._process = None
        self._note(f"the arbiter of this host's GPUs has ended with code {code}; see {self.folder.root / LOG}")

    def _hangs(self) -> bool:
        """Return whether some page has a beat, and every beat is old."""
        beats = [beat for page in self.folder.grant_pages() if (beat := _beat(page))]
        return bool(beats) and self._clock() - max(beats) > STALE_NS

    def _signal(self, arbiter: RunningArbiter, number: signal.Signals) -> None:
        """Send a signal to the arbiter if the process is one of this folder."""
        try:
            if os.fsencode(self.folder.root) in procfs.arguments(arbiter.pid):
                os.kill(arbiter.pid, number)
        except OSError as error:
            logger.warning("the arbiter (pid %d) cannot be ended: %s", arbiter.pid, error)

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            logger.error("%s", problem)
        self._problem = problem


def _beat(page: Path) -> int:
    """Return when the arbiter last wrote the page; 0 where none has it."""
    try:
        with page.open("rb") as file:
            return int(_PAGE_HEAD.unpack(file.read(_PAGE_HEAD.size))[2])
    except (OSError, struct.error):
        return 0
