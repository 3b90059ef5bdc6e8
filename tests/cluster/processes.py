"""Processes of a cluster that can be killed, stopped, frozen, slowed down and given another clock or disk."""

import os
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.cluster.isolation import MEMORY
from tests.wait import SECONDS

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = Path(__file__).with_name("machine.c")
LIBRARY: Final = MEMORY / "machine.so"
SLOW_RUNS_S: Final = 0.02  # of each of the slow process's turns
SLOW_STANDS_S: Final = 0.2


class Process:
    """One process that is started again at will; its output goes to a log."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        logs: Path,
        on: Sequence[str] = (),
        cwd: Path = ROOT,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        """`on` are words before the command that run it on another machine."""
        self._stop_signal = stop_signal
        self.name = name
        self._words = words
        self._environment = environment
        self._log = logs / f"{name}.log"
        self._on = on
        self._cwd = cwd
        self._is_wanted = False
        self._lock = threading.Lock()  # between who starts it and who finds it ended
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, clock_offset_s: int = 0) -> None:
        """Start it, unless it runs, with a clock that is wrong by so many seconds."""
        environment = dict(self._environment)
        if clock_offset_s:
            environment |= {"LD_PRELOAD": str(machine_library()), "TEST_CLOCK_OFFSET_S": str(clock_offset_s)}
        with self._lock:
            self._is_wanted = True
            if not self.is_up:
                self._run(environment)

    def keep_up(self) -> None:
        """Start it again where it has ended by itself, as an init system does."""
        with self._lock:
            if self._is_wanted and self._process and not self.is_up:
                self._run(dict(self._environment))

    def _run(self, environment: dict[str, str]) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._on, *self._words],
                cwd=self._cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it by SIGKILL, and its group with it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as an init system does: SIGKILL follows where its signal was not enough."""
        try:
            self._end(self._stop_signal)
        except subprocess.TimeoutExpired:
            self.kill()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it stand still until the block ends."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Let it run for a tenth of the time until the block ends."""
        done = threading.Event()

        def brake() -> None:
            while not done.wait(SLOW_RUNS_S):
                self._signal(signal.SIGSTOP)
                done.wait(SLOW_STANDS_S)
                self._signal(signal.SIGCONT)

        thread = threading.Thread(target=brake, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _end(self, how: signal.Signals) -> None:
        with self._lock:
            self._is_wanted = False
        if self._process:
            self._signal(signal.SIGCONT)
            self._signal(how)
            self._process.wait(SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Knobs:
    """What `machine.c` lets change while the processes of a machine run."""

    def __init__(self, name: str) -> None:
        """Begin with a right clock and a fast disk."""
        self._file = MEMORY / f"{name}.machine"
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of processes that are to have it."""
        return {"LD_PRELOAD": str(machine_library()), "TEST_MACHINE_FILE": str(self._file)}

    @contextmanager
    def turned(self, *, clock_s: int = 0, disk_ms: int = 0) -> Iterator[None]:
        """Have the clock step by so many seconds, and each write take so much longer, until the block ends."""
        self._write(clock_s, disk_ms * 1000)
        try:
            yield
        finally:
            self._write()

    def _write(self, *numbers: int) -> None:
        """Write in place: processes have the file in their memory."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("ll", *(numbers or (0, 0))))


def machine_library() -> Path:
    """Return the library that gives a process another clock and other cores, built once."""
    if not LIBRARY.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", LIBRARY, SOURCE, "-ldl"], check=True)
    return LIBRARY


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def kill_all(pids: Sequence[int]) -> None:
    """Kill these processes by SIGKILL; those that have ended are no error."""
    signal_all(pids, signal.SIGKILL)


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """Send these processes a signal; those that have ended are no error."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def pids_with(word: str) -> list[int]:
    """Return the ids of the processes that have this in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
