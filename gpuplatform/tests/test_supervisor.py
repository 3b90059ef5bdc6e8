"""How the platform's processes run and end together."""

import io
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuplatform.bootstrap.supervisor import GRACE_SECONDS, Command, Supervisor

WAIT = "import signal, os; print('ready', os.getpid(), flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAIT
FAIL = "import sys; print('out of luck', flush=True); sys.exit(3)"
FOLLOWED = "import os, signal, sys; file = open(sys.argv[1], 'w'); print('open', file=file, flush=True); signal.pause()"
OUTER = """
import asyncio, pathlib, sys
from gpuplatform.bootstrap.supervisor import Command, Supervisor
command = Command(name="inner", arguments=[sys.executable, "-c", sys.argv[1], sys.argv[2]])
supervisor = Supervisor([command], folder=pathlib.Path("."), output=sys.stdout)
asyncio.run(supervisor.run(lambda: False, lambda ready: None))
"""


def python(name: str, script: str) -> Command:
    """Return the command that runs a script."""
    return Command(name=name, arguments=[sys.executable, "-c", script])


def pids(output: io.StringIO) -> list[int]:
    """Return the process ids that the scripts have printed so far."""
    return [int(line.rsplit(maxsplit=1)[1]) for line in output.getvalue().splitlines() if "ready" in line]


def ask_to_stop(ready: bool) -> None:
    """Do as `kill` does once all is up."""
    assert ready
    os.kill(os.getpid(), signal.SIGTERM)


def all_up(output: io.StringIO, count: int) -> Callable[[], bool]:
    """Return the question whether so many scripts are ready."""
    return lambda: len(pids(output)) == count


async def test_a_signal_stops_all_and_is_no_fault(tmp_path: Path) -> None:
    output = io.StringIO()
    supervisor = Supervisor([python("web", WAIT), python("scheduler", WAIT)], folder=tmp_path, output=output)
    assert await supervisor.run(all_up(output, 2), ask_to_stop) is None
    for pid in pids(output):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert f"web       | ready {pids(output)[0]}" in output.getvalue() or "scheduler | ready" in output.getvalue()


async def test_a_process_that_ends_by_itself_ends_all_and_is_named(tmp_path: Path) -> None:
    output = io.StringIO()
    supervisor = Supervisor([python("web", WAIT), python("beat", FAIL)], folder=tmp_path, output=output)
    ended = await supervisor.run(lambda: False, lambda ready: None)
    assert ended is not None
    assert "'beat' ended by itself, with status 3" in ended
    assert "beat | out of luck" in output.getvalue()
    assert not any(_alive(pid) for pid in pids(output))


async def test_even_a_process_that_ends_well_was_not_asked_to(tmp_path: Path) -> None:
    supervisor = Supervisor([python("host", "pass")], folder=tmp_path, output=io.StringIO())
    assert "'host' ended by itself, with status 0" in (await supervisor.run(lambda: False, lambda ready: None) or "")


async def test_a_second_signal_kills_what_does_not_end(tmp_path: Path) -> None:
    class Impatient(io.StringIO):
        def write(self, text: str, /) -> int:
            if text.startswith("Stopping"):
                os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    output = Impatient()
    started = time.monotonic()
    supervisor = Supervisor([python("host", STUBBORN)], folder=tmp_path, output=output)
    assert await supervisor.run(all_up(output, 1), ask_to_stop) is None
    assert "host did not end in time and is killed" in output.getvalue()
    assert time.monotonic() - started < GRACE_SECONDS
    assert not any(_alive(pid) for pid in pids(output))


async def test_a_program_that_cannot_start_leaves_nothing_running(tmp_path: Path) -> None:
    output = io.StringIO()
    absent = Command(name="beat", arguments=[str(tmp_path / "absent")])
    supervisor = Supervisor([python("web", WAIT), absent], folder=tmp_path, output=output)
    ended = await supervisor.run(lambda: False, lambda ready: None)
    assert ended is not None
    assert "'beat'" in ended
    assert not any(_alive(pid) for pid in pids(output))


def test_processes_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    arguments = [sys.executable, "-c", OUTER, FOLLOWED, str(tmp_path / "pipe")]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as outer, (tmp_path / "pipe").open() as pipe:
        assert pipe.readline() == "open\n"
        outer.kill()
        readable, _, _ = select.select([pipe], [], [], 10)
        assert readable, "the inner process has the pipe open still"
        assert pipe.read() == ""  # the end of the file


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
