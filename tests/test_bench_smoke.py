"""The runner of the benchmarks' smoke runs: what it runs, what it says, and that it leaves nothing behind."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest

from bench import growth_world, smoke
from bench.process_tree import TIMED_OUT
from hostworker.simulated.fleet import SimulatedHost
from tests.wait import until

ROOT: Final = Path(__file__).resolve().parent.parent
TREE: Final = (sys.executable, "-m", "bench.process_tree")
CAMPAIGNS: Final = {"load", "faults", "faults-virtual", "demo-cluster", "screenshots", "week-virtual"}
# Starts a process in a session of its own, which outlives it, and writes down its id.
DAEMON: Final = "setsid sh -c 'echo $$ > {file}; exec sleep 300' & while [ ! -s {file} ]; do sleep 0.05; done; {then}"


def test_every_benchmark_of_the_makefile_has_a_smoke_run() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    benches = {target for target in targets if target.startswith(("bench-", "faults"))} - {"bench-smoke"}
    assert set(json.loads(smoke.KEYS.read_text())) == benches | CAMPAIGNS
    assert targets >= CAMPAIGNS


def test_every_benchmark_prints_keys() -> None:
    assert all(keys == sorted(keys) and keys for keys in json.loads(smoke.KEYS.read_text()).values())


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> smoke.Results:
    monkeypatch.setattr(smoke, "OUTPUT", tmp_path)
    return {}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ('echo progress; echo \'{"b": 1, "a": 2}\'; echo noise >&2', ""),
        ("echo '{\"b\": 1}'", "missing: a"),
        ('echo \'{"a": 1, "b": 1, "c": 1}\'', "unknown: c"),
        ("echo '[1]'", "the last line is no JSON object"),
        ('echo \'{"a": 1, "b": 1}\'; echo the end', "the last line is no JSON object"),
        ("true", "the last line is no JSON object"),
        ("exit 3", "exit status 3"),
        ("sleep 300", "took longer than 1 s"),
    ],
)
def test_what_is_wrong_with_a_benchmark_is_named(results: smoke.Results, script: str, problem: str) -> None:
    asyncio.run(smoke.check({"x": ("sh", "-c", script)}, {"x": ["a", "b"]}, results, limit_seconds=1))
    assert results["x"]["problem"] == problem


def test_benchmarks_know_smoke_runs_and_get_no_arguments(
    results: smoke.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGS", "bench-launch")
    script = 'echo "{\\"smoke$BENCH_SMOKE\\": 1, \\"args$ARGS\\": 1}"'
    asyncio.run(smoke.check({"x": ("sh", "-c", script)}, {"x": ["smoke1", "args"]}, results))
    assert results["x"]["problem"] == ""


def test_an_interrupted_run_ends_with_json() -> None:
    process = subprocess.Popen([sys.executable, "-m", "bench.smoke", "bench-fgpu"], stdout=subprocess.PIPE, text=True)
    until(lambda: _started_by(process.pid))
    process.send_signal(signal.SIGINT)
    last = process.communicate()[0].splitlines()[-1]
    assert json.loads(last)["benches"] == {"bench-fgpu": {"problem": "was interrupted"}}
    assert process.returncode == 1


def test_without_a_platform_its_benchmarks_say_so() -> None:
    command = [sys.executable, "-m", "bench.smoke", "bench-launch", "bench-terminal"]
    nowhere = os.environ | {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    last = subprocess.run(command, env=nowhere, capture_output=True, text=True, check=False).stdout.splitlines()[-1]
    problem = {"problem": "its platform did not start"}
    assert json.loads(last)["benches"] == {"bench-launch": problem, "bench-terminal": problem}


@pytest.mark.parametrize(("then", "status"), [("exit 3", 3), ("sleep 300", TIMED_OUT)])
def test_a_daemon_ends_with_the_command_that_left_it(tmp_path: Path, then: str, status: int) -> None:
    file = tmp_path / "pid"
    done = subprocess.run([*TREE, "2", "sh", "-c", DAEMON.format(file=file, then=then)], check=False)
    assert done.returncode == status
    assert not _lives(int(file.read_text()))


def test_a_daemon_ends_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"""
import asyncio, pathlib
from bench import smoke
smoke.OUTPUT = pathlib.Path({str(tmp_path)!r})
asyncio.run(smoke.check({{"x": ("sh", "-c", {DAEMON.format(file=file, then="sleep 300")!r})}}, {{}}, {{}}))
"""
    runner = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: file.exists() and file.read_text().strip())
    runner.kill()
    runner.wait()
    until(lambda: not _lives(int(file.read_text())))


def _started_by(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_growth_ends_where_a_consumer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise OSError("too many connections")

    monkeypatch.setattr(growth_world, "SETTLE_SECONDS", 0)
    with pytest.raises(OSError, match="too many"), growth_world.beside([fail()], lambda: False):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == growth_world.BESIDE]


def test_growth_calls_each_loop_once_in_its_pause() -> None:
    calls: Counter[str] = Counter()
    loops = [(lambda: calls.update(["often"]), 1.0), (lambda: calls.update(["seldom"]), 60.0)]
    fleet = [cast(SimulatedHost, SimpleNamespace(loops=loops)) for _ in range(8)]
    clock = growth_world.SetClock()
    due = growth_world.begun(fleet, clock)
    assert calls == {"often": 8, "seldom": 8}
    growth_world.live(due, clock, 15)
    assert calls == {"often": 8 + 8 * 15, "seldom": 8 + 3}  # of eight multiples of SPREAD, three are below a quarter
    growth_world.live(due, clock, 45)
    assert calls == {"often": 8 + 8 * 60, "seldom": 8 + 8}
