"""How the platform's processes run and end together."""

import asyncio
import io
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from operations.services.base import ServiceStatus
from operations.supervisor import supervisor as supervisor_module
from operations.supervisor.restarts import MOST, WINDOW_SECONDS, Restarts
from operations.supervisor.supervisor import Command, ServiceError, SupervisedService, Supervisor
from tests.wait import SECONDS, until

WAIT = "import signal, os; print('ready', os.getpid(), flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAIT
FAIL = "import sys; print('out of luck', flush=True); sys.exit(3)"
FOLLOWED = "import os, signal, sys; file = open(sys.argv[1], 'w'); print('open', file=file, flush=True); signal.pause()"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAIT!r}]); " + WAIT
ONCE = "import pathlib, sys; path = pathlib.Path('ran'); path.exists() and sys.exit(3); path.touch(); " + WAIT
OUTER = """
import asyncio, pathlib, sys
from operations.supervisor.supervisor import Command, Supervisor
command = Command(name="inner", arguments=[sys.executable, "-c", sys.argv[1], sys.argv[2]])
supervisor = Supervisor([command], folder=pathlib.Path("."), output=sys.stdout)
asyncio.run(supervisor.run(lambda: False, lambda ready: None))
"""


def python(name: str, script: str) -> Command:
    """Return the command that runs a script."""
    return Command(name=name, arguments=[sys.executable, "-c", script])


def pids(output: io.StringIO) -> list[int]:
    """Return the process ids that the scripts have printed so far."""
    return [int(pid) for pid in re.findall(r"ready (\d+)", output.getvalue())]


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
    assert not any(_alive(pid) for pid in pids(output))
    assert f"web       | ready {pids(output)[0]}" in output.getvalue() or "scheduler | ready" in output.getvalue()


async def test_what_starts_last_does_so_once_all_is_ready(tmp_path: Path) -> None:
    output = io.StringIO()
    last = Command(name="beat", arguments=[sys.executable, "-c", WAIT], starts_last=True)
    supervisor = Supervisor([last, python("web", WAIT)], folder=tmp_path, output=output)
    seen: list[list[tuple[str, ServiceStatus]]] = []

    def states() -> list[tuple[str, ServiceStatus]]:
        found = asyncio.run_coroutine_threadsafe(supervisor.states(), loop).result(SECONDS)
        return [(state.name, state.status) for state in found]

    def is_web_up() -> bool:
        seen.append(states())
        return all_up(output, 1)()

    def see_and_stop(ready: bool) -> None:
        until(all_up(output, 2))
        seen.append(states())
        ask_to_stop(ready)

    loop = asyncio.get_running_loop()
    assert await supervisor.run(is_web_up, see_and_stop) is None
    assert {tuple(states) for states in seen[:-1]} == {
        (("beat", ServiceStatus.STARTING), ("web", ServiceStatus.RUNNING))
    }
    assert seen[-1] == [("beat", ServiceStatus.RUNNING), ("web", ServiceStatus.RUNNING)]
    assert output.getvalue().index("web  | ready") < output.getvalue().index("beat | ready")
    assert not any(_alive(pid) for pid in pids(output))


async def test_what_starts_last_is_stopped_before_it_starts(tmp_path: Path) -> None:
    output = io.StringIO()
    last = Command(name="beat", arguments=[sys.executable, "-c", WAIT], starts_last=True)
    supervisor = Supervisor([last, python("web", WAIT)], folder=tmp_path, output=output)

    def stop() -> bool:
        if ready := all_up(output, 1)():
            ask_to_stop(ready)
        return False

    assert await supervisor.run(stop, lambda ready: None) is None
    assert "beat" not in output.getvalue()


async def test_a_process_that_exits_stops_all(tmp_path: Path) -> None:
    output = io.StringIO()
    supervisor = Supervisor([python("web", WAIT), python("beat", FAIL)], folder=tmp_path, output=output)
    ended = await supervisor.run(lambda: False, lambda ready: None)
    assert ended is not None
    assert "'beat' ended by itself, with status 3" in ended
    assert "beat | out of luck" in output.getvalue()
    assert not any(_alive(pid) for pid in pids(output))


async def test_a_killed_process_is_restarted_without_leftovers(
    tmp_path: Path,
) -> None:
    output = io.StringIO()
    supervisor = Supervisor([python("host", PARENT)], folder=tmp_path, output=output, first_delay=0.01)
    left: list[int] = []

    def kill_and_stop(ready: bool) -> None:
        killed = pids(output)
        leader = next(pid for pid in killed if os.getpgid(pid) == pid)
        os.kill(leader, signal.SIGKILL)
        until(lambda: len(pids(output)) == 4)
        left.extend(pid for pid in killed if _alive(pid))
        ask_to_stop(ready)

    assert await supervisor.run(all_up(output, 2), kill_and_stop) is None
    assert "WARNING: the process 'host' ended by itself, killed by SIGKILL; it is started again" in output.getvalue()
    assert not left
    assert not any(_alive(pid) for pid in pids(output))


async def test_a_process_that_keeps_exiting_stops_all(tmp_path: Path) -> None:
    output = io.StringIO()
    commands = [python("web", ONCE), python("beat", WAIT)]
    supervisor = Supervisor(commands, folder=tmp_path, output=output, first_delay=0.001)

    def end_web(ready: bool) -> None:
        (line,) = (line for line in output.getvalue().splitlines() if line.startswith("web"))
        os.kill(int(line.rsplit(maxsplit=1)[1]), signal.SIGTERM)

    ended = await supervisor.run(all_up(output, 2), end_web)
    assert ended is not None
    assert f"'web' ended by itself, with status 3, {MOST + 1} times within a minute" in ended
    assert not any(_alive(pid) for pid in pids(output))


async def test_a_service_that_cannot_restart_stops_all(tmp_path: Path) -> None:
    def fail() -> None:
        raise ServiceError("the disk is full")

    output = io.StringIO()
    service = SupervisedService(name="the database", is_up=lambda: False, start=fail)
    supervisor = Supervisor(
        [python("web", WAIT)], folder=tmp_path, output=output, services=[service], first_delay=0.001, check_every=0.001
    )
    ended = await supervisor.run(lambda: True, lambda ready: None)
    assert ended == f"the database was down {MOST + 1} times within a minute; the lines above say why"
    assert output.getvalue().count("the database does not start: the disk is full") == MOST
    assert not any(_alive(pid) for pid in pids(output))


def test_restart_delays_grow_and_restarts_are_limited() -> None:
    restarts = Restarts(first_delay=1)
    assert [restarts.delay(second) for second in range(MOST + 1)] == [1, 2, 4, 8, 16, None]
    assert restarts.delay(WINDOW_SECONDS + 0.5) == 16  # the first has left the window
    assert restarts.delay(WINDOW_SECONDS + 0.6) is None
    assert restarts.delay(3 * WINDOW_SECONDS) == 1


async def test_exit_code_0_stops_all_too(tmp_path: Path) -> None:
    supervisor = Supervisor([python("host", "pass")], folder=tmp_path, output=io.StringIO())
    assert "'host' ended by itself, with status 0" in (await supervisor.run(lambda: False, lambda ready: None) or "")


async def test_a_second_signal_kills_what_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "GRACE_SECONDS", 3600)

    class Impatient(io.StringIO):
        def write(self, text: str, /) -> int:
            if text.startswith("Stopping"):
                os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    output = Impatient()
    supervisor = Supervisor([python("host", STUBBORN)], folder=tmp_path, output=output)
    async with asyncio.timeout(SECONDS):
        assert await supervisor.run(all_up(output, 1), ask_to_stop) is None
    assert "host did not end in time and is killed" in output.getvalue()
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
        readable, _, _ = select.select([pipe], [], [], SECONDS)
        assert readable, "the inner process has the pipe open still"
        assert pipe.read() == ""  # the end of the file


def _alive(pid: int) -> bool:
    """Return whether the process runs; one that has ended and was not reaped yet has no command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False
