"""Simulated hosts run sessions as real ones do, but for the containers."""

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from hostworker.agent import due_work, starts
from hostworker.containers import runner
from hostworker.simulated.fleet import SimulatedHost, register, simulate
from hostworker.simulated.programs import MAX_BATCH_SECONDS
from hostworker.simulated.runtime import SimulatedContainers
from resources.amounts.units import GIB
from resources.gpus.discovery import Machine, simulated_devices
from resources.models import GpuReading, Host, HostStatus, Installation
from scheduler.cycle.passes import run_group_pass
from sessions.launching import services
from sessions.lifecycle import FINAL, Kind, Reason, Status
from sessions.models import Session, SessionUsage
from tests.factories import make_session, run_session, session_in
from tests.wait import until

MAX_QUERIES_A_SECOND = 0.75  # of an idle host, of which there may be a thousand


def machine(name: str) -> Machine:
    return Machine(cpu=8, memory=64 * GIB, devices=simulated_devices("2x8GiB", name), architecture="amd64")


def one_host() -> Host:
    (host,) = register(["sim-1"], machine, ["cluster"], "http://127.0.0.1:1")
    return host


def queries_of(act: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as queries:
        act()
    return len([each for each in queries.captured_queries if "SAVEPOINT" not in each["sql"]])


def simulated(host: Host) -> SimulatedHost:
    made = SimulatedHost(host, Installation.current_key(), SimulatedContainers())
    made.restore()
    return made


@pytest.mark.django_db
def test_a_session_runs_is_measured_and_ends_by_itself() -> None:
    host = one_host()
    made = simulated(host)
    session = session_in(
        Status.SCHEDULED, host=host, resource_group=host.group, fgpu=500, kind=Kind.BATCH, command="python train.py"
    )
    starts.begin(made.runtime, session.pk, session.attempt)
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    for loop, _ in made.loops:
        loop()
    session.refresh_from_db()
    assert session.status == Status.RUNNING  # and the reconciler has found its container
    assert Host.objects.get().status == HostStatus.READY
    assert SessionUsage.objects.get(session=session).memory is not None
    assert GpuReading.objects.count() == 2
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - timedelta(seconds=MAX_BATCH_SECONDS + 1))
    later = simulated(host)  # as after a restart
    later.end_programs()
    session.refresh_from_db()
    assert (Status(session.status) in FINAL, session.reason) == (True, Reason.CONTAINER_EXITED)


@pytest.mark.django_db
def test_an_idle_host_asks_little_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_last_start", SimpleNamespace(at=-math.inf))
    made = simulated(one_host())
    for loop, _ in made.loops:
        loop()
    per_second = 1 / due_work.ASK_SECONDS  # for the statement that all loops share
    monkeypatch.setattr(due_work, "ASK_SECONDS", math.inf)
    for loop, seconds in made.loops:
        per_second += queries_of(loop) / seconds
    assert per_second <= MAX_QUERIES_A_SECOND


@pytest.mark.django_db(transaction=True)
def test_a_fleet_starts_and_ends_sessions_by_messages() -> None:
    host = one_host()
    running = run_session(host=host, resource_group=host.group, container_id="c" * 64)
    fleet = simulate([host], SimulatedContainers())
    fleet.begin()
    thread = threading.Thread(target=fleet.run)
    thread.start()
    try:
        until(lambda: Host.objects.get().status == HostStatus.READY)
        session = make_session(resource_group=host.group, fgpu=500)
        run_group_pass(host.group_id)
        until(lambda: Session.objects.get(pk=session.pk).status == Status.RUNNING)
        services.terminate(session, actor=session.owner)
        until(lambda: Session.objects.get(pk=session.pk).status == Status.TERMINATED)
        assert Session.objects.get(pk=running.pk).status == Status.RUNNING
    finally:
        fleet.should_stop = True
        thread.join()
        fleet.end()
