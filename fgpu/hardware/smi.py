"""What nvidia-smi says of the GPUs of this machine, and who uses them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used")
MIG_FIELD = "mig.mode.current"  # drivers before r450 do not know it
FORMAT = "--format=csv,noheader,nounits"
IDLE_MIB = 1024  # that driver and firmware may hold of an idle GPU; a sixteenth of it where that is more


@dataclass(frozen=True)
class SmiGpu:
    """A GPU as nvidia-smi lists it; memory in MiB, None where it does not say."""

    index: str
    uuid: str
    name: str
    driver: str
    total_mib: int | None
    used_mib: int | None
    is_cut: bool = False  # in MIG mode


class SmiError(Exception):
    """nvidia-smi did not answer, or not with what it was asked for; the message says what it said."""


def parse_gpus(text: str) -> list[SmiGpu]:
    """Return the GPUs in the answer to a query of FIELDS and, where the driver knows it, MIG_FIELD. Raises SmiError."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        values = [value.strip() for value in line.split(",")]
        if len(values) < len(FIELDS) or not values[1].startswith("GPU-"):
            raise SmiError(line)
        index, uuid, name, driver, total, used, *mig = values[: len(FIELDS) + 1]
        found.append(SmiGpu(index, uuid, name, driver, _mib(total), _mib(used), mig == ["Enabled"]))
    return found


def parse_processes(text: str) -> dict[str, list[str]]:
    """Return {UUID: programs} of the answer to a query of gpu_uuid, pid and process_name; other lines are remarks."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        uuid, _, program = line.partition(",")
        if uuid.startswith(("GPU-", "MIG-")):
            found.setdefault(uuid, []).append(" ".join(program.replace(",", " ").split()))
    return found


def _mib(text: str) -> int | None:
    return int(text) if text.isdecimal() else None  # "[N/A]", "[Not Supported]", "[Unknown Error]", ...


def busy_with(gpu: SmiGpu, processes: Mapping[str, list[str]]) -> str:
    """Return in words who uses the GPU, "" where nobody does."""
    if programs := processes.get(gpu.uuid):
        return f"used by {len(programs)} process{'es' if len(programs) > 1 else ''}: {', '.join(programs[:3])}"
    if gpu.used_mib is not None and gpu.used_mib > max(IDLE_MIB, (gpu.total_mib or 0) // 16):
        return f"{gpu.used_mib} MiB of its memory are in use, by processes that nvidia-smi does not list"
    return ""


def ask(program: str, environment: Mapping[str, str], query: str) -> str:
    """Return what nvidia-smi answers. Raises SmiError."""
    try:
        done = subprocess.run(
            [program, query, FORMAT], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmiError(str(error)) from error
    if done.returncode:
        raise SmiError((done.stdout + done.stderr).strip() or f"it ended with {done.returncode}")
    return done.stdout


def list_gpus(program: str, environment: Mapping[str, str]) -> list[SmiGpu]:
    """Return the GPUs that nvidia-smi lists. Raises SmiError."""
    try:
        return parse_gpus(ask(program, environment, "--query-gpu=" + ",".join((*FIELDS, MIG_FIELD))))
    except SmiError as error:
        if MIG_FIELD not in str(error):
            raise
        return parse_gpus(ask(program, environment, "--query-gpu=" + ",".join(FIELDS)))


def list_processes(program: str, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return {UUID: programs that compute there}; {} where nvidia-smi does not say."""
    try:
        return parse_processes(ask(program, environment, "--query-compute-apps=gpu_uuid,pid,process_name"))
    except SmiError:
        return {}
