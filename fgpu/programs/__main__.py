"""Run other people's tests on the simulated driver, plain and in a share, and say how they differ.

python -m fgpu.programs --folder FOLDER [NAME ...]: environments and logs go to the folder, `report.json` too. It needs
PyPI, a compiler for the programs that are built, and build/ as `make -C fgpu tests` makes it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from fgpu.limits import GpuLimit, prepare
from fgpu.mounts import BUILD
from fgpu.simulated import SimulatedGpu, format_config

HERE: Final = Path(__file__).resolve().parent
GIB: Final = 1 << 30
UUID: Final = "GPU-00000000-0000-4000-8000-000000000001"
STUCK_SECONDS: Final = 1200
PYTEST: Final = "pytest==9.2.0"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class OtherProgram:
    """A row of programs.toml, and where it is installed."""

    name: str
    row: dict[str, Any]
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def words(self, templates: list[str]) -> list[str]:
        """Fill in the places that the table names."""
        places = {
            "here": HERE,
            "folder": self.folder,
            "build": BUILD,
            "packages": self._packages(),
            "python": self.python,
        }
        return [template.format(**places) for template in templates]

    def _packages(self) -> Path:
        return next((self.folder / "venv" / "lib").glob("python*/site-packages"))

    def install(self) -> None:
        """Make its environment; once it is whole, it stays."""
        whole = self.folder / "installed"
        what = json.dumps([self.row["install"], self.row.get("build", [])])
        if whole.exists() and whole.read_text() == what:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        venv.create(self.folder / "venv", clear=True, with_pip=True)
        pip = [str(self.python), "-m", "pip", "install", "--quiet"]
        _run([*pip, PYTEST, *self.row["install"]], self.folder)
        for command in self.row.get("build", []):
            _run(self.words(command), self.folder)
        whole.write_text(what)


def _run(command: list[str], folder: Path) -> None:
    """Run a step of an installation; what it writes is shown where it fails."""
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: {(result.stdout + result.stderr)[-2000:]}")


def _environment(program: OtherProgram, scratch: Path, *, share: bool) -> dict[str, str]:
    """Return that of a process on a GPU of 8 GiB of its own; with a share, of half of it, in time as well."""
    scratch.mkdir(parents=True, exist_ok=True)
    gpu = SimulatedGpu(uuid=UUID, name="Simulated GPU 8 GiB", memory=8 * GIB)
    (scratch / "gpus.conf").write_text(
        format_config([gpu]).replace("cuda 12.8", f"cuda {program.row.get('cuda', '12.9')}")
    )
    libraries = [str(BUILD / "sim"), *program.words(program.row.get("libraries", []))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FGPU_"))}
    environment |= {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PYTHONPATH": ":".join([str(HERE / "plugins"), *program.words(program.row.get("paths", []))]),
        "FGPU_SIM_CONFIG": str(scratch / "gpus.conf"),
        "FGPU_SIM_STATE": str(scratch / "state"),
    }
    if share:
        limit = GpuLimit(uuid=UUID, memory_bytes=4 * GIB, sm_percent=Decimal(50))
        prepare(scratch / "session", [limit], sharing="cap", pinned_bytes=4 * GIB)
        environment |= {
            "LD_PRELOAD": str(BUILD / "test" / "libfgpu.so"),
            "FGPU_LIMITS": str(scratch / "session" / "limits.conf"),
            "FGPU_REGION": str(scratch / "session" / "region"),
            "FGPU_PROGRAMS_ACCOUNT": str(scratch / "account.json"),
            "FGPU_PROGRAMS_REGION_READER": str(HERE.parent / "region.py"),
        }
    return environment


def outcomes(report: Path) -> dict[str, str]:
    """Return how each test of a JUnit report ended. Parts of a test that report by themselves count with it."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 our own file
        kinds = {child.tag for child in case}
        outcome = FAILED if kinds & {"failure", "error"} else SKIPPED if "skipped" in kinds else PASSED
        name = f"{case.get('classname')}.{case.get('name')}"
        found[name] = FAILED if FAILED in (outcome, found.get(name)) else outcome
    return found


def _test(program: OtherProgram, *, share: bool) -> tuple[dict[str, str], dict[str, int]]:
    """Run the tests once; return how they ended, and in a share what was charged and used when they had."""
    scratch = program.folder / ("share" if share else "plain")
    subprocess.run(["rm", "-rf", str(scratch)], check=True)
    environment = _environment(program, scratch, share=share)
    tests = program.words(program.row["tests"])
    command = [str(program.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "fgpu_account", *tests]
    command += ["-c", "/dev/null", "--rootdir", str(scratch), f"--junitxml={scratch / 'report.xml'}"]
    with (scratch / "log").open("w") as log:
        subprocess.run(
            command, cwd=scratch, env=environment, check=False, stdout=log, stderr=log, timeout=STUCK_SECONDS
        )
    if not (scratch / "report.xml").exists():
        sys.exit(f"{program.name} came to no end: {scratch / 'log'}")
    account = scratch / "account.json"
    return outcomes(scratch / "report.xml"), json.loads(account.read_text()) if account.exists() else {}


def examine(program: OtherProgram) -> dict[str, Any]:
    """Run a program's tests plain and in a share; return a line of the report."""
    program.install()
    plain, _ = _test(program, share=False)
    share, account = _test(program, share=True)
    counts = {kind: list(plain.values()).count(kind) for kind in (PASSED, FAILED, SKIPPED)}
    return {
        "program": program.name,
        "version": program.row["version"],
        "tests": len(plain),
        **counts,
        "passed_in_a_share": list(share.values()).count(PASSED),
        "other_in_a_share": sorted(name for name in plain | share if plain.get(name) != share.get(name)),
        **account,
        "why_not": program.row["not"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    rows = tomllib.loads((HERE / "programs.toml").read_text())
    chosen = {name: row for name, row in rows.items() if not options.names or name in options.names}
    report: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "programs": []}
    for name, row in chosen.items():
        line = examine(OtherProgram(name, row, options.folder.resolve() / name))
        report["programs"].append(line)
        (options.folder / "report.json").write_text(json.dumps(report, indent=1))
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
