"""A day of somebody who knows Slurm, from the command line alone: simulated hosts, and the platform's own services."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from django.db import connections

from accounts.models import ApiToken, User
from arrays.models import Array
from gpuplatform_client.tests.program import Command, RunningProgram
from hostworker.containers import runner
from hostworker.runtime_protocol import Runtime
from hostworker.simulated.fleet import SimulatedFleet, SimulatedHost, register
from hostworker.simulated.programs import Program
from hostworker.simulated.runtime import SimulatedContainers
from resources.amounts.units import GIB
from resources.gpus.discovery import Machine, simulated_devices
from resources.models import Host, HostStatus, Installation
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.sweeps import enforce_deadlines
from tests.factories import make_group, make_image, make_user
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]
SCRIPT = """#!/bin/bash
#SBATCH --job-name={name} --time=1:00:00 --cpus-per-task=2 --mem=2G
#SBATCH --output={name}-%j.out
python {name}.py
"""


class SimulatedLab:
    """A host on which sessions start by messages, and whose programs end as a test says."""

    def __init__(self) -> None:
        machine = Machine(cpu=16, memory=64 * GIB, devices=simulated_devices("2x8GiB", "lab"), architecture="amd64")
        [host] = register(["lab-1"], lambda name: machine, ["lab"], "http://127.0.0.1:1")
        self._host = SimulatedHost(host, Installation.current_key(), SimulatedContainers())
        self._fleet = SimulatedFleet([self._host])
        self._thread = threading.Thread(target=self._fleet.run)

    def begin(self) -> None:
        """Return once the host takes sessions."""
        self._fleet.begin()
        self._thread.start()
        until(lambda: Host.objects.get().status == HostStatus.READY)

    def end(self) -> None:
        """Leave the sessions as they are."""
        self._fleet.should_stop = True
        self._thread.join()
        self._fleet.end()
        connections.close_all()

    def reach(self, session_id: str, status: Status) -> None:
        """Do what the scheduler does every few seconds, until the session has this status."""
        enforce_deadlines()
        run_pass()
        until(lambda: Session.objects.get(pk=session_id).status == status)

    def finish(self, session_id: str, exit_code: int) -> None:
        """End the program of a session."""
        session, runtime = Session.objects.get(pk=session_id), cast("Runtime", self._host.runtime)
        self._host.runtime.end(session_id, session.attempt, exit_code=exit_code)
        [state] = [each for each in runtime.containers() if each.session == session_id]
        runner.note_exit(runtime, state)


@pytest.fixture
def user(transactional_db: None) -> User:
    make_group(name="lab")
    make_image(reference="team/torch:2", environment="PyTorch", version="2")
    return make_user(email="user@example.org")


@pytest.fixture
def lab(user: User, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedLab]:
    monkeypatch.setattr(Program, "output", lambda program, seconds: [f"This is {program.session}."])
    lab = SimulatedLab()
    lab.begin()
    yield lab
    lab.end()


def test_a_slurm_user_has_a_whole_day(  # noqa: PLR0915  # a day is long
    server: LiveServer, user: User, lab: SimulatedLab, signed_in: Command, tmp_path: Path
) -> None:
    def gpuplatform(*arguments: str, given: str | None = None, exit_code: int = 0) -> str:
        done = signed_in(*arguments, given=given)
        assert done.exit_code == exit_code, done.stderr
        return str(done.stdout).strip()

    def sbatch(name: str, *options: str) -> str:
        script = tmp_path / f"{name}.sh"
        script.write_text(SCRIPT.format(name=name))
        return gpuplatform("run", "--detach", "--file", str(script), "--image", "pytorch", *options)

    # Submit a job, and a chain of three behind it.
    train = sbatch("train")
    evaluate = sbatch("evaluate", "--dependency", f"afterok:{train}")
    report = sbatch("report", f"--dependency=afterany:{train}")
    alert = sbatch("alert", f"--dependency=afternotok:{train},after:{report}")
    lab.reach(train, Status.RUNNING)
    assert Session.objects.filter(status=Status.PENDING).count() == 3

    # Watch it.
    gpuplatform("wait", "--for", "running", "train")
    assert {train, evaluate, report, alert} == {*gpuplatform("ls", "-o", "name").split()}
    token = ApiToken.objects.issue(user, name="watch")[1]
    with RunningProgram(server.url, token, tmp_path, "wait", train) as watch:
        lab.finish(train, exit_code=3)
        assert watch.wait() == 1

    # It failed: what waited for its success is cancelled, and what waited for its end or failure runs.
    assert gpuplatform("logs", train) == f"This is {train}."
    lab.reach(evaluate, Status.CANCELLED)
    assert "train, which has ended without success" in gpuplatform("events", evaluate, "-o", "json")
    for each in (report, alert):
        lab.reach(each, Status.RUNNING)

    # Cancel one that runs.
    gpuplatform("stop", "report")
    lab.reach(report, Status.TERMINATED)

    # Queue the failed one again, as it was, with another evaluation behind it.
    again = gpuplatform("run", "--detach", "--file", "-", given=gpuplatform("export", train) + "\n")
    then = sbatch("evaluate", "--dependency", f"afterok:{again}")
    lab.reach(again, Status.RUNNING)
    lab.finish(again, exit_code=0)
    lab.reach(then, Status.RUNNING)
    lab.finish(then, exit_code=0)
    gpuplatform("wait", again, then)

    # Sweep over 1,000 tasks with an evaluation behind them, and cancel half of them, then all.
    script = tmp_path / "sweep.sh"
    script.write_text(SCRIPT.format(name="sweep").replace("bash\n", "bash\n#SBATCH --array=1-1000%50\n", 1))
    array = gpuplatform("run", "--detach", "--file", str(script), "--image", "pytorch")
    last = sbatch("evaluate", "--dependency", f"afterany:{array}")
    gpuplatform("arrays", "cancel", array, "--tasks", "1-500")
    assert Array.objects.get(pk=array).counted()["cancelled"] == 500
    lab.reach(last, Status.PENDING)
    gpuplatform("arrays", "cancel", array)
    lab.reach(last, Status.RUNNING)
    lab.finish(last, exit_code=0)
    gpuplatform("wait", last)

    # Report what was used.
    rows = gpuplatform("usage").splitlines()
    assert [row.split()[:2] for row in rows if row.startswith("user@")] == [["user@example.org", "7"]]
