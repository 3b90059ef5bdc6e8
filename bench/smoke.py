"""`make bench-smoke`: every benchmark at its smoke size, and the keys of its JSON object; `ARGS="TARGET..."` for some.

Targets and keys are in bench/smoke_keys.json, which `--update` brings to what the benchmarks print. Each runs in
processes of its own for at most LIMIT_SECONDS, its output in var/bench-smoke. The last line is one JSON object,
whatever happened: whether all is well, and by target the seconds it took and what is wrong.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from asyncio import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from bench.process_tree import TIMED_OUT
from bench.sizes import PLATFORM

KEYS: Final = Path(__file__).with_name("smoke_keys.json")
OUTPUT: Final = Path(__file__).resolve().parent.parent / "var" / "bench-smoke"
AT_ONCE: Final = 2  # of those that need no platform, beside one that does
SHARED: Final = "platform"  # its output and file
ON_PLATFORM: Final = {
    "bench-launch",
    "bench-promote",
    "bench-terminal",
    "bench-abuse",
    "bench-deployments",
    "bench-imports",
}  # one at a time
POLL_SECONDS: Final = 0.1
LIMIT_SECONDS: Final = 600
LAST_LINES: Final = 15
WITHOUT_TARGET: Final = {"demo-cluster": (sys.executable, "-m", "bench.demo_cluster")}  # it runs until it is stopped
OF_MAKE: Final = {"ARGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}  # of the make that runs this

Results = dict[str, dict[str, Any]]


def main() -> int:
    """Run what the arguments say; return the exit status."""
    known: dict[str, list[str]] = json.loads(KEYS.read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--update", action="store_true", help="write the keys that were found")
    options = parser.parse_args()
    if unknown := set(options.targets) - known.keys():
        parser.error(f"{KEYS.name} does not have {', '.join(sorted(unknown))}")
    keys = {target: known[target] for target in options.targets or known}
    begun = time.monotonic()
    results: Results = {target: {"problem": "did not run"} for target in keys}
    try:
        asyncio.run(run(list(keys), {} if options.update else keys, results))
    except asyncio.CancelledError:
        print("interrupted", file=sys.stderr)
    finally:
        found = {target: result.pop("keys") for target, result in results.items() if "keys" in result}
        is_well = not any(result["problem"] for result in results.values())
        seconds = round(time.monotonic() - begun)
        print(json.dumps({"ok": is_well, "seconds": seconds, "benches": results}), flush=True)
    if options.update:
        lines = (f"{json.dumps(target)}: {json.dumps(names)}" for target, names in (known | found).items())
        KEYS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return not is_well


def command_of(target: str) -> Sequence[str]:
    """Return what runs the benchmark of a target of the Makefile."""
    return WITHOUT_TARGET.get(target) or ("make", "-s", "--no-print-directory", target)


async def run(targets: Sequence[str], keys: Mapping[str, Sequence[str]], results: Results) -> None:
    """Check the benchmarks of these targets; raise CancelledError after SIGINT or SIGTERM."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    lent: AbstractAsyncContextManager[dict[str, str] | None]
    lent = _platform() if ON_PLATFORM & {*targets} else nullcontext({})
    async with lent as variables:
        if variables is None:
            print(_last_lines(SHARED), flush=True)
            results |= {target: {"problem": "its platform did not start"} for target in ON_PLATFORM & {*targets}}
            targets = [target for target in targets if target not in ON_PLATFORM]
        await check({target: command_of(target) for target in targets}, keys, results, variables=variables or {})


async def check(
    commands: Mapping[str, Sequence[str]],
    keys: Mapping[str, Sequence[str]],
    results: Results,
    *,
    limit_seconds: int = LIMIT_SECONDS,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run the commands and put into `results` what became of each, any keys being right where `keys` has none."""
    free, platform = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

    async def run_one(target: str) -> None:
        async with platform if target in ON_PLATFORM else free:
            results[target] = {"problem": "was interrupted"}
            begun = time.monotonic()
            async with _started(target, commands[target], limit_seconds, variables) as process:
                status = await process.wait()
            result = _checked(target, status, keys.get(target), limit_seconds)
            results[target] = {"seconds": round(time.monotonic() - begun, 1), **result}
            print(f"{target}: {results[target]['problem'] or 'ok'}, {results[target]['seconds']} s", flush=True)
            if result["problem"]:
                print(_last_lines(target), flush=True)

    async with asyncio.TaskGroup() as group:
        for target in commands:
            group.create_task(run_one(target))


@asynccontextmanager
async def _platform() -> AsyncIterator[dict[str, str] | None]:
    """Run the platform of bench/shared_platform.py; give the variable that names it, or None if it did not start."""
    file = OUTPUT / f"{SHARED}.json"
    command = (sys.executable, "-m", "bench.shared_platform", str(file))
    async with _started(SHARED, command, len(ON_PLATFORM) * LIMIT_SECONDS, {}) as process:
        output = OUTPUT / f"{SHARED}.out"
        while process.returncode is None and not output.read_text():
            await asyncio.sleep(POLL_SECONDS)
        yield {PLATFORM: str(file)} if process.returncode is None else None


@asynccontextmanager
async def _started(
    name: str, command: Sequence[str], limit_seconds: int, variables: Mapping[str, str]
) -> AsyncIterator[subprocess.Process]:
    """Run the command until the block ends. The kernel has its tree of processes end should this one be killed."""
    tree = ("setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "bench.process_tree", str(limit_seconds))
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE} | {"BENCH_SMOKE": "1"}
    with (OUTPUT / f"{name}.out").open("wb") as out, (OUTPUT / f"{name}.err").open("wb") as err:
        process = await subprocess.create_subprocess_exec(
            *(*tree, *command),
            env=environment | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _checked(target: str, status: int, expected: Sequence[str] | None, limit_seconds: int) -> dict[str, Any]:
    """Return what is wrong with the output of a benchmark, if anything, and the keys of its JSON object."""
    if status == TIMED_OUT:
        return {"problem": f"took longer than {limit_seconds} s"}
    if status:
        return {"problem": f"exit status {status}"}
    try:
        keys = sorted(json.loads((OUTPUT / f"{target}.out").read_text().splitlines()[-1]).keys())
    except (IndexError, ValueError, AttributeError):
        return {"problem": "the last line is no JSON object"}
    wanted = set(keys if expected is None else expected)
    wrong = {"missing": wanted - set(keys), "unknown": set(keys) - wanted}
    problem = "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in wrong.items() if names)
    return {"problem": problem, "keys": keys}


def _last_lines(name: str) -> str:
    """Return the last lines that a benchmark, or its platform, has written."""
    texts = [(OUTPUT / f"{name}.{kind}").read_text(errors="replace") for kind in ("out", "err")]
    return "\n".join(f"    {line}" for text in texts for line in text.splitlines()[-LAST_LINES:])


if __name__ == "__main__":
    sys.exit(main())
