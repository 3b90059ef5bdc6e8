"""What the parts of the protocol share: where the programs run, and what was found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from fgpu.limits import GRANT_BYTES, GpuLimit, Sharing, prepare

ROOT = Path(__file__).resolve().parent.parent
HOOK = ROOT / "build" / "test" / "libfgpu.so"
CONTEXT_BYTES = 512 << 20  # as in production: COMPUTE_GPU_CONTEXT_MEMORY
STUCK_SECONDS = 300  # a program that takes longer will not end


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass
class Bench:
    """Where the programs run, and what was found."""

    folder: Path
    dry: bool
    seconds: float
    gpu: dict[str, Any] = field(default_factory=dict)
    rounds: int = 0
    out: Path | None = None  # where the report is written
    kernels_us: list[int] | None = None  # lengths of the kernels that contend, where not the usual ones
    checks: list[dict[str, Any]] = field(default_factory=list)
    sessions: int = 0

    def base(self) -> dict[str, str]:
        shared = {"FGPU_SECONDS": str(self.seconds), "FGPU_ROUNDS": str(self.rounds), "FGPU_SIM_PARTIES": "1"}
        if self.dry:
            shared |= {
                "LD_LIBRARY_PATH": str(ROOT / "build" / "sim"),
                "FGPU_SIM_CONFIG": str(self.folder / "gpus.conf"),
                "FGPU_SIM_STATE": str(self.folder / "state"),
                "FGPU_SIM_CLOCK": "virtual",
            }
        return dict(os.environ) | shared

    def session(
        self,
        percent: Decimal | int,
        *,
        pinned_bytes: int = 0,
        context_bytes: int = CONTEXT_BYTES,
        sharing: Sharing = "cap",
        arbiter: Path | None = None,
    ) -> dict[str, str]:
        """The environment of a session with that share of memory and SMs; `arbiter` is the folder of one, for turns."""
        self.sessions += 1
        limit = GpuLimit(
            uuid=self.gpu["uuid"],
            memory_bytes=int(self.gpu["total"] * percent // 100),
            sm_percent=Decimal(percent),
            context_bytes=context_bytes,
        )
        folder = self.folder / str(self.sessions)
        limits, region = prepare(folder, [limit], sharing=sharing, pinned_bytes=pinned_bytes)
        files = {"LD_PRELOAD": str(HOOK), "FGPU_LIMITS": str(limits), "FGPU_REGION": str(region)}
        if arbiter:
            own = arbiter / f"session-{self.sessions}"
            (own / "socket").mkdir(parents=True)
            (own / "grant").write_bytes(bytes(GRANT_BYTES))
            shutil.copy(limits, own / "lease.conf")
            files |= {"FGPU_GRANT": str(own / "grant"), "FGPU_SOCKET": str(own / "socket" / "arbiter")}
        return self.base() | files

    def check(self, name: str, passed: bool, **figures: object) -> None:
        self.checks.append({"check": name, "passed": passed, **figures})
        self.report()
        say(f"{'ok  ' if passed else 'FAIL'} {name}: {json.dumps(figures)}")

    def report(self) -> None:
        if self.out:
            report = {"simulated": self.dry, "gpu": self.gpu, "checks": self.checks}
            temporary = self.out / "report.new"
            temporary.write_text(json.dumps(report, indent=1) + "\n")
            temporary.replace(self.out / "report.json")


def start(environment: dict[str, str], *command: str) -> subprocess.Popen[str]:
    program = [sys.executable, str(ROOT / "hardware" / command[0]), *command[1:]]
    return subprocess.Popen(program, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what the program found, or {"failed": why}; what it said of its failure is on our standard error."""
    try:
        output, _ = process.communicate(timeout=STUCK_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"failed": "it did not end"}
    if process.returncode:
        return {"failed": process.returncode}
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def run(environment: dict[str, str], *command: str) -> dict[str, Any]:
    return finish(start(environment, *command))


def percent_of(plain: dict[str, Any], seen: dict[str, Any], key: str) -> float:
    """Return what was seen in percent of the plain figure; 0 where either run failed."""
    return round(100 * seen.get(key, 0) / plain[key], 2) if plain.get(key) else 0.0
