"""What the parts of the protocol share: where programs run as in sessions, and what was found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from fgpu.hardware import report as reports
from fgpu.limits import GRANT_BYTES, GpuLimit, Sharing, prepare

ROOT = Path(__file__).resolve().parent.parent
HOOK = ROOT / "build" / "libfgpu.so"
TEST_HOOK = ROOT / "build" / "test" / "libfgpu.so"  # on the simulated clock; limits where the environment says
CONTEXT_BYTES = 512 << 20  # as in production: COMPUTE_GPU_CONTEXT_MEMORY
STUCK_SECONDS = 120  # a program that takes longer will not end
# Enters a session without a container: /run of its own, with the session's files in /run/fgpu, where the hook looks.
ENTER = """
mkdir -p "$1/outer"
mount --rbind /run "$1/outer"
mount -t tmpfs tmpfs /run
ln -s "$1"/outer/* /run/
rm -f /run/fgpu
mkdir /run/fgpu
mount --bind "$1" /run/fgpu
hook=$2
shift 2
LD_PRELOAD=$hook exec "$@"
"""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class SessionPlace:
    """Where programs run: their environment, and the command that leads there."""

    environment: Mapping[str, str]
    command: tuple[str, ...] = ()

    def __or__(self, more: Mapping[str, str]) -> SessionPlace:
        return SessionPlace({**self.environment, **more}, self.command)

    def without(self, *names: str) -> SessionPlace:
        return SessionPlace(
            {name: value for name, value in self.environment.items() if name not in names}, self.command
        )


class StepTimeoutError(Exception):
    """A step has taken all of its time."""


@dataclass
class Bench:
    """Where the programs run, and what was found."""

    folder: Path
    simulated: bool
    seconds: float
    gpu: dict[str, Any] = field(default_factory=dict)
    visible: str = ""  # the UUID of the one GPU that programs see; all where it is empty
    rounds: int = 0
    out: Path | None = None  # the report
    about: dict[str, Any] = field(default_factory=dict)  # what the report begins with
    kernels_us: list[int] | None = None  # lengths of the kernels that contend, where not the usual ones
    python: str = sys.executable  # whose PyTorch and JAX are tried
    checks: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    sessions: int = 0

    @property
    def is_virtual(self) -> bool:
        """Whether the simulated driver's clock is, too: then its figures of time are exact on any machine."""
        return self.simulated and TEST_HOOK.exists()

    @property
    def hook(self) -> Path:
        return TEST_HOOK if self.is_virtual else HOOK

    def base(self) -> SessionPlace:
        """Without the hook."""
        shared = {"FGPU_SECONDS": str(self.seconds), "FGPU_ROUNDS": str(self.rounds), "FGPU_SIM_PARTIES": "1"}
        if self.visible:
            shared |= {"CUDA_VISIBLE_DEVICES": self.visible}
        if self.simulated:
            shared |= {
                "LD_LIBRARY_PATH": str(ROOT / "build" / "sim"),
                "FGPU_SIM_CONFIG": str(self.folder / "gpus.conf"),
                "FGPU_SIM_STATE": str(self.folder / "state"),
            }
        if self.is_virtual:
            shared |= {"FGPU_SIM_CLOCK": "virtual"}
        return SessionPlace(dict(os.environ) | shared)

    def session(
        self,
        percent: Decimal | int,
        *,
        pinned_bytes: int = 0,
        context_bytes: int = CONTEXT_BYTES,
        sharing: Sharing = "cap",
        arbiter: Path | None = None,
    ) -> SessionPlace:
        """A session with that share of memory and SMs; `arbiter` is the folder of one, for turns."""
        self.sessions += 1
        limit = GpuLimit(
            uuid=self.gpu["uuid"],
            memory_bytes=int(self.gpu["memory_bytes"] * percent // 100),
            sm_percent=Decimal(percent),
            context_bytes=context_bytes,
        )
        folder = self.folder / str(self.sessions)
        limits, region = prepare(folder, [limit], sharing=sharing, pinned_bytes=pinned_bytes)
        files = {"FGPU_LIMITS": str(limits), "FGPU_REGION": str(region)}
        if arbiter:
            own = arbiter / f"session-{self.sessions}"
            (own / "socket").mkdir(parents=True)
            (own / "grant").write_bytes(bytes(GRANT_BYTES))
            os.link(own / "grant", folder / "grant")
            (folder / "arbiter").symlink_to(own / "socket")
            shutil.copy(limits, own / "lease.conf")
            files |= {"FGPU_GRANT": str(own / "grant"), "FGPU_SOCKET": str(own / "socket" / "arbiter")}
        if self.is_virtual:
            return self.base() | files | {"LD_PRELOAD": str(self.hook)}
        return SessionPlace(
            self.base().environment, (*namespace(), "sh", "-euc", ENTER, "sh", str(folder), str(self.hook))
        )

    def start(self, place: SessionPlace, *command: str, python: str = sys.executable) -> subprocess.Popen[str]:
        """Start a program of this folder there."""
        program = [*place.command, python, str(ROOT / "hardware" / command[0]), *command[1:]]
        process = subprocess.Popen(
            program, env=place.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.running.append(process)
        return process

    def run(self, place: SessionPlace, *command: str, python: str = sys.executable) -> dict[str, Any]:
        return finish(self.start(place, *command, python=python))

    def end_programs(self) -> None:
        """End what a step has left running; a process that the driver does not let go is left to it."""
        for process in self.running:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            for pipe in filter(None, (process.stdin, process.stdout)):
                with suppress(BrokenPipeError):
                    pipe.close()
        self.running.clear()

    def check(self, name: str, passed: bool, **figures: object) -> None:
        step = self.steps[-1]["step"] if self.steps else ""
        self.checks.append({"check": name, "step": step, "passed": passed, **figures})
        self.report()
        say(f"{'ok  ' if passed else 'FAIL'} {name}: {json.dumps(figures)}")

    def report(self) -> None:
        if self.out:
            found = {"steps": self.steps, "checks": self.checks, "figures": reports.figures(self.steps, self.checks)}
            reports.write(self.out, {**self.about, **found})


def namespace() -> tuple[str, ...]:
    """Return the command that makes mounts of one's own, as root or in a user namespace."""
    own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ("unshare", *own, "--mount", "--propagation", "private")


def namespace_problem() -> str:
    """Return why no session can be entered here; "" where it can."""
    try:
        done = subprocess.run([*namespace(), "true"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"it ended with {done.returncode}" if done.returncode else ""


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what the program found, or {"failed": why}; what it said of its failure is on our standard error."""
    try:
        output, _ = process.communicate(timeout=STUCK_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return {"failed": "it did not end"}
    if process.returncode:
        return {"failed": process.returncode}
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def percent_of(plain: dict[str, Any], seen: dict[str, Any], key: str) -> float:
    """Return what was seen in percent of the plain figure; 0 where either run failed."""
    return round(100 * seen.get(key, 0) / plain[key], 2) if plain.get(key) else 0.0


@dataclass(frozen=True)
class ProtocolStep:
    """A part of the protocol; `needs` returns why it cannot be made here, "" if it can."""

    does: str
    limit_seconds: int
    check: Callable[[Bench], None]
    is_timed: bool = False  # its figures mean nothing where the simulated driver runs in real time
    needs: Callable[[Bench], str] = lambda bench: ""


def readline(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a program says before it ends; {} where it ends without a word."""
    line = process.stdout.readline() if process.stdout else ""
    said: dict[str, Any] = json.loads(line or "{}")
    return said


def go(process: subprocess.Popen[str]) -> None:
    """Let a program go on that waits for a line."""
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write("go\n")
        process.stdin.flush()


def wall_seconds(began: float) -> float:
    return round(time.monotonic() - began, 1)
