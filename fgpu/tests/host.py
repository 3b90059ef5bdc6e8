"""A simulated host and the sessions on it, for tests: processes with the hook preloaded, spoken to line by line."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from fgpu.limits import GRANT_BYTES, GpuLimit, Sharing, prepare
from fgpu.mounts import BUILD
from fgpu.simulated import SimulatedGpu, TimeSlicing, format_config

MIB = 1 << 20
GIB = 1 << 30
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
NOT_SUPPORTED = 801
SYSTEM_NOT_READY = 802
LOSSY_QUERY = 402
CAPTURE_INVALIDATED = 901
SANITIZER = os.environ.get("FGPU_SANITIZER", "")  # asan or tsan: all tests run with the builds of that sanitizer
RUNTIMES = {"asan": ("libasan.so", "libubsan.so"), "tsan": ("libtsan.so",)}
HOOK = f"test/libfgpu-{SANITIZER}.so" if SANITIZER else "test/libfgpu.so"
ARBITER = "test/arbiter-asan" if SANITIZER == "asan" else "test/arbiter"  # it has one thread
UUIDS = tuple(f"GPU-00000000-0000-4000-8000-00000000000{n}" for n in range(1, 4))


def limit(uuid: str = UUIDS[0], memory: int = 2 * GIB, sm: str = "25", **more: int) -> GpuLimit:
    return GpuLimit(uuid=uuid, memory_bytes=memory, sm_percent=Decimal(sm), **more)


@cache
def runtimes_of(hook: str) -> list[str]:
    """Return the libraries that programs with this build of the hook load first."""
    names = next((names for kind, names in RUNTIMES.items() if hook.endswith(f"-{kind}.so")), ())
    commands = [["gcc", f"-print-file-name={name}"] for name in names]
    return [subprocess.run(each, check=True, capture_output=True, text=True).stdout.strip() for each in commands]


class Probe:
    """A running test program; `ask` sends a command and returns the words of its answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def ask(self, command: str) -> list[str]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin
        assert stdout
        stdin.write(command + "\n")
        stdin.flush()
        return stdout.readline().split()

    def code(self, command: str) -> int:
        """The CUDA result of a command."""
        return int(self.ask(command)[0])

    def alloc(self, size: int, how: str = "plain", slot: int = 0) -> int:
        return self.code(f"alloc {how} {size} {slot}")

    def free(self) -> int:
        code, free, _total = self.ask("info")
        assert code == "0"
        return int(free)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class Session:
    """A container in miniature: a limits file, a region, and the hook preloaded into its programs."""

    host: Host
    folder: Path
    hook: str = HOOK
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def limits(self) -> Path:
        return self.folder / "limits.conf"

    @property
    def region(self) -> Path:
        return self.folder / "region"

    @property
    def meeting_place(self) -> Path:
        """The folder by which the session and the arbiter know each other."""
        return self.host.arbiter_folder / self.folder.name

    def environment(self) -> dict[str, str]:
        hook = ":".join([*runtimes_of(self.hook), str(BUILD / self.hook)]) if self.hook else ""
        files = {"FGPU_LIMITS": str(self.limits), "FGPU_REGION": str(self.region)}
        files |= {"FGPU_GRANT": str(self.meeting_place / "grant")}
        files |= {"FGPU_SOCKET": str(self.meeting_place / "socket" / "arbiter")}
        return self.host.environment() | files | {"LD_PRELOAD": hook} | self.extra

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        program = [str(BUILD / command[0]), *command[1:]]
        process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment() | environment
        )
        self.host.processes.append(process)
        return process

    def run(self, *command: str, **environment: str) -> str:
        process = self.start(*command, **environment)
        output, _ = process.communicate(timeout=120)
        return output

    def probe(self, enter: bool = True, **environment: str) -> Probe:
        """A program with CUDA initialised and device 0 entered, unless told otherwise."""
        probe = Probe(self.start("test/probe", **environment))
        if enter:
            assert probe.code("init") == 0
            assert probe.code("enter 0") == 0
        return probe


class Host:
    """Simulated GPUs: their configuration, their shared state, and every process started on them."""

    def __init__(self, folder: Path, gpus: int = 1) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.arbiter_folder = folder / "arbiter"
        self.arbiter_folder.mkdir()
        self.sessions = 0
        self.configure(gpus)

    def configure(self, gpus: int, *, memory_limits: bool = False, slicing: TimeSlicing | None = None) -> None:
        simulated = [SimulatedGpu(uuid=uuid, name="Simulated GPU 8 GiB", memory=8 * GIB) for uuid in UUIDS[:gpus]]
        (self.folder / "gpus.conf").write_text(
            format_config(simulated, memory_limits=memory_limits, slicing=slicing or TimeSlicing())
        )

    def environment(self) -> dict[str, str]:
        return self._sanitizers() | {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(BUILD / "sim"),
            "FGPU_SIM_CONFIG": str(self.folder / "gpus.conf"),
            "FGPU_SIM_STATE": str(self.folder / "state"),
            "FGPU_SIM_PURE_CAPTURES": "1",
        }

    def _sanitizers(self) -> dict[str, str]:
        """Return what has programs end at the first report; of leaks there are none, since the simulated driver has."""
        options = f"exitcode=99:halt_on_error=1:log_path={self.folder / 'sanitizer'}"
        return {"ASAN_OPTIONS": f"{options}:detect_leaks=0", "UBSAN_OPTIONS": options, "TSAN_OPTIONS": options}

    def reports(self) -> str:
        """Return what sanitizers have reported of the processes."""
        return "\n".join(each.read_text() for each in self.folder.glob("sanitizer.*"))

    def session(self, *limits: GpuLimit, hook: str = HOOK, sharing: Sharing = "cap", pinned_bytes: int = 0) -> Session:
        self.sessions += 1
        session = Session(self, self.folder / f"session{self.sessions}", hook)
        prepare(session.folder, limits or [limit()], sharing=sharing, pinned_bytes=pinned_bytes)
        (session.meeting_place / "socket").mkdir(parents=True)
        (session.meeting_place / "grant").write_bytes(bytes(GRANT_BYTES))
        (session.meeting_place / "lease.conf").write_bytes(session.limits.read_bytes())
        (session.meeting_place / "lease.conf").chmod(0o444)
        return session

    def arbiter(
        self, program: str = ARBITER, descriptors: tuple[int, int] | None = None, /, **environment: str
    ) -> subprocess.Popen[str]:
        """Start the arbiter of the sessions made so far, and of those to come.

        `descriptors` are the soft and the hard limit of how many it may have.
        """
        limited = ["prlimit", f"--nofile={descriptors[0]}:{descriptors[1]}"] if descriptors else []
        arbiter = subprocess.Popen(
            [*limited, str(BUILD / program), "--dir", str(self.arbiter_folder), "--build", "test"],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment() | environment,
        )
        self.processes.append(arbiter)
        assert arbiter.stdout
        assert arbiter.stdout.readline() == "ready\n"
        return arbiter

    def bare(self) -> Session:
        """Programs on the host itself, without the hook."""
        session = self.session()
        session.hook = ""
        return session

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
