"""The hook on a real GPU, in one command and ten minutes, without Docker: fgpu/hardware/run [--dry-run].

Each step has its own time, so that one that hangs does not take the others; each check says what was measured and
whether it passes, and the report is written after each one, so that what was measured before a failure is kept. It
needs Python 3.11, the hook as it is installed (or built: make fgpu), `unshare` and the NVIDIA driver. `--simulate` does
the same on the simulated driver.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from fgpu.hardware import common, frameworks, report, shares, smi
from fgpu.hardware.common import ROOT, Bench, ProtocolStep, StepTimeoutError, say
from fgpu.hardware.contention import check_burst, check_contention
from fgpu.simulated import DRIVER, SimulatedGpu, format_config

SIMULATED_UUID = "GPU-00000000-0000-4000-8000-000000000001"
TOTAL_SECONDS = 600
BUSY, NO_GPU, FAILED = 4, 3, 1  # exit statuses

STEPS: dict[str, ProtocolStep] = {
    "views": ProtocolStep(
        "what nvidia-smi, NVML and the lookups of functions show in a share of 25 %", 40, shares.check_views
    ),
    "memory": ProtocolStep(
        "memory of seven kinds, until it is refused at the share to the byte", 90, shares.check_memory
    ),
    "processes": ProtocolStep("two processes of a session in one share; one is killed", 60, shares.check_shared_cap),
    "pinned": ProtocolStep("page-locked host memory up to its bound", 40, shares.check_pinned_memory),
    "contention": ProtocolStep(
        "two, three and four sessions at the same time, also with unequal shares", 240, check_contention, is_timed=True
    ),
    "burst": ProtocolStep(
        "idle time used by others, and how soon an owner has it back", 90, check_burst, is_timed=True
    ),
    "launches": ProtocolStep("what a launch costs with the hook", 60, shares.check_launches, is_timed=True),
    "time": ProtocolStep(
        "one session by its own budget, with four kinds of load", 120, shares.check_share_of_time, is_timed=True
    ),
    "pytorch": ProtocolStep(
        "PyTorch: three allocators, training, products", 150, frameworks.check_torch, needs=frameworks.needs("PyTorch")
    ),
    "nccl": ProtocolStep("NCCL in a share", 60, frameworks.check_nccl, needs=frameworks.needs("NCCL")),
    "jax": ProtocolStep("JAX: memory, training, products", 120, frameworks.check_jax, needs=frameworks.needs("JAX")),
}


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fgpu/hardware/run", description="Measure the hook on a GPU of this machine.")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done here, and do nothing")
    parser.add_argument("--simulate", action="store_true", help="on the simulated driver")
    parser.add_argument("--gpu", default="", help="index or UUID; the first one, where none is given")
    parser.add_argument("--force", action="store_true", help="also where others use the GPU, whose figures it spoils")
    parser.add_argument("--out", type=Path, default=Path("fgpu-hardware"), help="folder in which the report goes")
    parser.add_argument("--python", default=sys.executable, help="whose PyTorch and JAX are tried")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement of speed")
    parser.add_argument("--kernels", type=int, nargs="+", metavar="US", help="let kernels of these lengths contend")
    parser.add_argument("--only", nargs="+", choices=STEPS, help="these steps alone")
    parser.add_argument("--limit", type=float, default=TOTAL_SECONDS, help="seconds after which no step goes on")
    return parser.parse_args(arguments)


def choose(bench: Bench, wanted: str) -> smi.SmiGpu | None:
    """Return the GPU that is measured, by nvidia-smi; None where there is no nvidia-smi. Raises SmiError."""
    program = shares.smi_program(bench)
    if program is None:
        return None
    gpus = smi.list_gpus(program, bench.base().environment)
    found = [gpu for gpu in gpus if not wanted or wanted in (gpu.index, gpu.uuid)]
    if not found:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
        raise smi.SmiError(f"there is no GPU {wanted or 'here'}; there are: {known}")
    return found[0]


def refusal(bench: Bench, gpu: smi.SmiGpu) -> str:
    """Return why this GPU cannot be measured now, "" where it can."""
    if gpu.is_cut:
        return "it is in MIG mode: its instances are held apart by hardware, and the hook divides none of them"
    processes = smi.list_processes(shares.smi_program(bench) or "", bench.base().environment)
    return smi.busy_with(gpu, processes)


def look_around(bench: Bench, driver: str) -> str:
    """Find out what is measured here; return why nothing can be, "" otherwise."""
    found = bench.run(bench.base(), "workload.py", "about")
    calibrated = {} if "failed" in found else bench.run(bench.base(), "workload.py", "calibrate")
    if "rounds" not in calibrated:
        return "No GPU can be used here without the hook; nothing was measured."
    if not bench.is_virtual and (problem := common.namespace_problem()):
        return f"This user may not make a namespace for the session ({problem}); run it as root."
    bench.rounds = calibrated["rounds"]
    cuda = found.pop("cuda")
    bench.gpu = found
    bench.about = {
        "schema": report.SCHEMA_VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": False,
        "simulated": bench.simulated,
        "version": version(),
        "hook": hashlib.sha256(bench.hook.read_bytes()).hexdigest(),
        "driver": driver,
        "cuda": cuda,
        "gpu": found,
    }
    say(json.dumps(bench.about))
    return ""


def version() -> str:
    """Return the commit of a clone, or the version of the package; "" where neither is known."""
    for command in (
        ["git", "-C", str(ROOT.parent), "rev-parse", "HEAD"],
        ["dpkg-query", "-W", "-f", "${Version}", "gpuplatform"],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return done.stdout.strip()[:64]
    return ""


def obstacle(bench: Bench, step: ProtocolStep) -> str:
    """Return why a step is left out here, "" where it is not."""
    if step.is_timed and bench.simulated and not bench.is_virtual:
        return "the simulated driver in real time tells nothing of time; make -C fgpu tests builds one with a clock"
    return step.needs(bench)


def expire(number: int, frame: FrameType | None) -> None:
    raise StepTimeoutError


def take(bench: Bench, name: str, seconds: float) -> None:
    """Make one step, within its time, whatever becomes of it."""
    step, began = STEPS[name], time.monotonic()
    row = {"step": name, "state": "running", "why": "", "seconds": 0.0}
    bench.steps.append(row)
    # Again each second: what is raised while an object is deleted is lost.
    signal.setitimer(signal.ITIMER_REAL, max(0.001, min(step.limit_seconds, seconds)), 1)
    try:
        if seconds <= 0:
            row["state"], row["why"] = "skipped", "the time of the whole run was over"
        elif why := obstacle(bench, step):
            row["state"], row["why"] = "skipped", why
        else:
            say(f"--- {name}: {step.does}")
            step.check(bench)
            failed = [each["check"] for each in bench.checks if each["step"] == name and not each["passed"]]
            row["state"], row["why"] = ("failed" if failed else "passed"), "; ".join(failed)[:500]
    except StepTimeoutError:
        row["state"], row["why"] = "timed out", f"it took more than {min(step.limit_seconds, seconds):.0f} s"
    except Exception as error:  # whatever it was, the other steps are made
        row["state"], row["why"] = "failed", f"{type(error).__name__}: {error}"[:500]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        bench.end_programs()
        row["seconds"] = common.wall_seconds(began)
        bench.report()


def plan(bench: Bench, gpu: smi.SmiGpu | None, names: list[str]) -> None:
    """Say what would be done here."""
    if gpu:
        say(f"{gpu.name} ({gpu.uuid}), driver {gpu.driver}: {refusal(bench, gpu) or 'used by nobody'}")
    else:
        say("No NVIDIA GPU was found here. On a machine with one:")
    for name in names:
        why = obstacle(bench, STEPS[name]) if gpu else ""
        say(
            f"{name:<11} up to {STEPS[name].limit_seconds:3} s  {STEPS[name].does}{f'; left out: {why}' if why else ''}"
        )


def measure(bench: Bench, names: list[str], limit_seconds: float) -> int:
    """Make the steps, say what came of them; return the exit status."""
    signal.signal(signal.SIGALRM, expire)
    ends = time.monotonic() + limit_seconds
    try:
        for name in names:
            take(bench, name, ends - time.monotonic())
    finally:
        bench.end_programs()
    bench.about["complete"] = True
    bench.report()
    assert bench.out
    found = json.loads(bench.out.read_text())
    for line in ("", *report.in_words(found), f"The report is {bench.out}"):
        say(line)
    return FAILED if report.failed_steps(found) else 0


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    names = list(options.only or STEPS)
    if not common.HOOK.exists():
        say(f"{common.HOOK} is missing; `make fgpu` builds it.")
        return FAILED
    with tempfile.TemporaryDirectory(prefix="fgpu-hardware-") as folder:
        bench = Bench(
            Path(folder), options.simulate, options.seconds, kernels_us=options.kernels, python=options.python
        )
        uuid = options.gpu if options.simulate and options.gpu.startswith("GPU-") else SIMULATED_UUID
        simulated = SimulatedGpu(uuid=uuid, name="Simulated GPU 8 GiB", memory=8 << 30)
        (bench.folder / "gpus.conf").write_text(format_config([simulated], driver=DRIVER))
        try:
            gpu = choose(bench, options.gpu)
        except smi.SmiError as error:
            say(f"nvidia-smi: {error}")
            gpu = None
        if options.dry_run:
            plan(bench, gpu, names)
            return 0
        if gpu is None:
            say("There is no GPU to be measured; nothing was measured.")
            return NO_GPU
        if (why := refusal(bench, gpu)) and (gpu.is_cut or not options.force):
            hint = "" if gpu.is_cut else " --force does it all the same."
            say(f"{gpu.name} ({gpu.uuid}) is not measured: {why}.{hint}")
            return BUSY
        bench.visible = "" if bench.simulated else gpu.uuid
        if problem := look_around(bench, gpu.driver):
            say(problem)
            return NO_GPU
        options.out.mkdir(parents=True, exist_ok=True)
        began = bench.about["date"].replace(":", "").partition("+")[0]
        bench.out = options.out.resolve() / f"{began}Z-{gpu.uuid[:12]}.json"
        return measure(bench, names, options.limit)


if __name__ == "__main__":
    sys.exit(main())
