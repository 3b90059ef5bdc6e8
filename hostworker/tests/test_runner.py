"""The host's side of a session: starts and stops that may be repeated, interrupted and overtaken anywhere."""

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from hostworker.containers import app_environment, runner, specs
from hostworker.runtime_protocol import (
    ContainerPhase,
    ContainerRuntimeError,
    ContainerState,
    EnforcementError,
    EngineUnreachableError,
    GpuGrant,
    ImageUnavailableError,
    StartError,
)
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import fresh, start_session, started, stopping
from resources.amounts.units import GIB
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Lease, Session
from tests.factories import make_group, make_host, run_session, session_in
from tests.queues import take_all

pytestmark = pytest.mark.django_db

START_STEPS = ["ensure_image", "create", "start"]
STOP_STEPS = ["stop", "logs", "remove"]


def end(session: Session) -> None:
    services.terminate(fresh(session), actor=session.owner)


def phases(runtime: FaultInjectingRuntime) -> list[ContainerPhase]:
    return [state.phase for state in runtime.containers()]


def has_lease(session: Session) -> bool:
    return Lease.objects.filter(session=session).exists()


def test_scheduled_session_runs_in_requested_container(runtime: FaultInjectingRuntime) -> None:
    host = make_host(group=make_group(fgpu_per_gpu=2), gpus=2)
    session = session_in(
        Status.SCHEDULED,
        host=host,
        name="My_work.1",
        cpu=3,
        memory=2 * GIB,
        shared_memory=GIB,
        fgpu=2500,
        environment={"LANG": "C", "GPUPLATFORM_SESSION_ID": "forged", "MLFLOW_WORKERS": "4"},
        allow_sudo=True,
    )
    start_session(runtime, session.pk, 1)
    stored = fresh(session)
    assert (stored.status, stored.reason) == (Status.RUNNING, Reason.STARTED)
    assert [event.new_status for event in session.events.all()] == ["SCHEDULED", "PREPARING", "RUNNING"]
    (container,) = runtime.containers()
    assert (container.container_id, container.phase) == (stored.container_id, ContainerPhase.RUNNING)
    assert stored.address == runtime.address(session.pk, 1)
    spec = runtime.spec(session.pk, 1)
    assert spec
    assert (spec.image, spec.cpu, spec.memory_bytes, spec.shared_memory_bytes) == (
        session.image.reference,
        3,
        2 * GIB,
        GIB,
    )
    assert (spec.allow_sudo, spec.hostname) == (True, "My-work-1")
    assert spec.environment == app_environment.variables() | app_environment.thread_counts(3) | {
        "GPUPLATFORM_SESSION_ID": session.pk,
        "GPUPLATFORM_SESSION_NAME": "My_work.1",
    }
    assert spec.variables == {"LANG": "C", "MLFLOW_WORKERS": "4"}
    first, second = (gpu.uuid for gpu in host.gpus.order_by("index"))
    assert [(gpu.uuid, gpu.share_milli) for gpu in spec.gpus] == [(first, 2000), (second, 500)]
    assert spec.gpus[0] == GpuGrant(
        uuid=first, share_milli=2000, gpu_milli=2000, memory_bytes=8 * GIB, is_simulated=True
    )


def test_reused_address_leads_to_no_earlier_session(
    runtime: FaultInjectingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of the engine: the containers are gone, their exits not yet noted, their addresses free."""
    host = make_host()
    before, elsewhere = run_session(host=host), run_session()
    Session.objects.update(address="10.255.0.1")  # what the engine will give first
    session = session_in(Status.SCHEDULED, host=host)
    withdrawn: list[tuple[str, list[ContainerPhase]]] = []
    monkeypatch.setattr(runner, "withdraw", lambda pk: withdrawn.append((pk, phases(runtime))))
    start_session(runtime, session.pk, 1)
    assert fresh(session).address == "10.255.0.1"
    assert withdrawn == [(before.pk, [ContainerPhase.CREATED])]
    assert (fresh(before).address, fresh(elsewhere).address) == (None, "10.255.0.1")


def test_a_killed_process_is_noted_once_a_minute(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    for _ in range(3):
        runner.note_memory_kill(session.pk, session.attempt)
    runner.note_memory_kill(session.pk, session.attempt + 1)
    events = session.events.filter(reason=Reason.PROCESS_OUT_OF_MEMORY)
    assert [event.detail for event in events] == [
        "Out of memory: a process was killed, because the session had used its 1 GiB."
    ]
    assert fresh(session).status == Status.RUNNING


@pytest.mark.parametrize(
    ("operation", "failure", "reason"),
    [
        ("ensure_image", ImageUnavailableError("No such image."), Reason.IMAGE_UNAVAILABLE),
        ("create", ImageUnavailableError("No such image."), Reason.IMAGE_UNAVAILABLE),
        ("create", StartError("No such program.", is_host_fault=False), Reason.START_FAILED),
        ("start", StartError("x" * 1000, is_host_fault=False), Reason.START_FAILED),
        ("start", EnforcementError("No glibc in the image.", is_host_fault=False), Reason.ENFORCEMENT_FAILED),
    ],
)
def test_refused_start_ends_session_with_its_cause(
    runtime: FaultInjectingRuntime,
    operation: str,
    failure: ContainerRuntimeError,
    reason: Reason,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    take_all("scheduler")
    session = session_in(Status.SCHEDULED)
    runtime.fail_next(operation, failure)
    with django_capture_on_commit_callbacks(execute=True):
        start_session(runtime, session.pk, 1)
    stored = fresh(session)
    assert (stored.status, stored.reason, stored.detail) == (Status.ERROR, reason, str(failure)[:300])
    assert not has_lease(session)
    assert runtime.containers() == []
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


@pytest.mark.parametrize("happens_after", [False, True])
@pytest.mark.parametrize("operation", START_STEPS)
def test_a_start_that_was_interrupted_is_taken_up_again(
    runtime: FaultInjectingRuntime, operation: str, happens_after: bool
) -> None:
    session = session_in(Status.SCHEDULED)
    runtime.fail_next(operation, EngineUnreachableError("away"), happens_after=happens_after)
    start_session(runtime, session.pk, 1)
    assert fresh(session).status == Status.PREPARING
    assert has_lease(session)
    start_session(runtime, session.pk, 1)
    assert fresh(session).status == Status.RUNNING
    assert phases(runtime) == [ContainerPhase.RUNNING]
    assert not runner.is_preparing(session.pk, 1)


def test_a_repeated_start_message_starts_once(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    start_session(runtime, session.pk, 1)
    assert fresh(session).container_id == session.container_id
    assert runtime.logs(session.pk, 1, 10).count("ready") == 1


@pytest.mark.parametrize(("exit_code", "target", "result"), [(0, "TERMINATED", "SUCCESS"), (3, "ERROR", "FAILURE")])
def test_a_job_ended_under_a_dead_worker_keeps_its_result(
    exit_code: int, target: str, result: str, runtime: FaultInjectingRuntime
) -> None:
    session = session_in(Status.SCHEDULED, command="true", kind="batch")
    runtime.fail_next("start", EngineUnreachableError("the worker died"), happens_after=True)
    start_session(runtime, session.pk, 1)
    runtime.end(session.pk, 1, exit_code=exit_code)
    start_session(runtime, session.pk, 1)
    (state,) = runtime.containers()
    runner.note_exit(runtime, state)
    ended = fresh(session)
    assert (ended.status, ended.reason, ended.result) == (target, Reason.CONTAINER_EXITED, result)
    assert ended.exit_code == exit_code
    assert runtime.containers() == []


@pytest.mark.parametrize("status", [Status.PENDING, Status.TERMINATING, Status.TERMINATED, Status.CANCELLED])
def test_a_start_that_comes_too_late_does_nothing(runtime: FaultInjectingRuntime, status: Status) -> None:
    session = session_in(status)
    start_session(runtime, session.pk, 1)
    assert fresh(session).status == status
    assert runtime.containers() == []


def test_a_start_or_stop_of_an_earlier_attempt_does_nothing(runtime: FaultInjectingRuntime) -> None:
    for status, act in ((Status.SCHEDULED, start_session), (Status.TERMINATING, runner.stop)):
        session = session_in(status)
        act(runtime, session.pk, 0)
        assert fresh(session).status == status


def test_start_of_withdrawn_assignment_does_nothing(runtime: FaultInjectingRuntime) -> None:
    session = session_in(Status.SCHEDULED)
    end(session)
    start_session(runtime, session.pk, 1)
    assert fresh(session).status == Status.CANCELLED


@pytest.mark.parametrize("operation", START_STEPS)
def test_session_ended_during_start_leaves_no_container(runtime: FaultInjectingRuntime, operation: str) -> None:
    session = session_in(Status.SCHEDULED)
    runtime.just_before(operation, lambda: end(session))
    start_session(runtime, session.pk, 1)
    assert fresh(session).status == Status.TERMINATING
    assert len(runtime.containers()) == (operation != "ensure_image")  # else the stop takes it away
    runner.stop(runtime, session.pk, 1)
    assert fresh(session).status == Status.TERMINATED
    assert runtime.containers() == []
    assert not has_lease(session)


def test_session_freed_during_start_leaves_no_container(runtime: FaultInjectingRuntime) -> None:
    session = session_in(Status.SCHEDULED)
    runtime.just_before("start", lambda: fresh(session).move_to(Status.ERROR, Reason.START_TIMEOUT))
    start_session(runtime, session.pk, 1)
    assert fresh(session).reason == Reason.START_TIMEOUT
    assert runtime.containers() == []


def bring_to_run_elsewhere(runtime: FaultInjectingRuntime, session: Session) -> None:
    """Do what a second worker of the host does when it is told the same start and is quicker."""
    container_id = runtime.create(specs.spec_of(fresh(session)))
    runtime.start(session.pk, 1)
    fresh(session).move_to(Status.RUNNING, Reason.STARTED, fields={"container_id": container_id})


@pytest.mark.parametrize("failure", [None, StartError("Name taken."), ImageUnavailableError("Registry down.")])
@pytest.mark.parametrize("operation", START_STEPS)
def test_overtaken_worker_spares_the_other_workers_container(
    runtime: FaultInjectingRuntime, operation: str, failure: ContainerRuntimeError | None
) -> None:
    session = session_in(Status.SCHEDULED)

    def overtake() -> None:
        bring_to_run_elsewhere(runtime, session)
        if failure:
            runtime.fail_next(operation, failure)

    runtime.just_before(operation, overtake)
    start_session(runtime, session.pk, 1)
    assert fresh(session).status == Status.RUNNING
    assert phases(runtime) == [ContainerPhase.RUNNING]


def test_a_stop_ends_the_session_and_keeps_its_last_output(
    runtime: FaultInjectingRuntime, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    session = stopping(runtime)
    runtime.write_log(session.pk, 1, "the\0end")
    take_all("scheduler")
    with django_capture_on_commit_callbacks(execute=True):
        runner.stop(runtime, session.pk, 1)
        runner.stop(runtime, session.pk, 1)
    stored = fresh(session)
    assert (stored.status, stored.reason) == (Status.TERMINATED, Reason.USER_REQUEST)
    assert stored.detail == f"Ended by {session.owner}."
    assert stored.log_tail == f"{session.pk} ready\ntheend\n"
    assert not has_lease(session)
    assert runtime.containers() == []
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


@pytest.mark.parametrize("happens_after", [False, True])
@pytest.mark.parametrize("operation", STOP_STEPS)
def test_interrupted_stop_frees_lease_only_once_stopped(
    runtime: FaultInjectingRuntime, operation: str, happens_after: bool
) -> None:
    session = stopping(runtime)
    runtime.fail_next(operation, EngineUnreachableError("away"), happens_after=happens_after)
    runner.stop(runtime, session.pk, 1)
    assert has_lease(session) == (operation == "stop")
    assert ContainerPhase.RUNNING not in phases(runtime) or has_lease(session)
    runner.stop(runtime, session.pk, 1)
    assert fresh(session).status == Status.TERMINATED
    for state in runtime.containers():
        runner.clear_away(runtime, state.session, state.attempt)
    assert fresh(session).log_tail == f"{session.pk} ready\n" or (operation, happens_after) == ("remove", True)


def test_a_stop_of_what_runs_still_does_nothing(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    runner.stop(runtime, session.pk, 1)
    assert fresh(session).status == Status.RUNNING
    assert phases(runtime) == [ContainerPhase.RUNNING]


def test_a_stop_without_a_container_is_success(runtime: FaultInjectingRuntime) -> None:
    session = stopping(runtime)
    runtime.lose_container(session.pk, 1)
    runner.stop(runtime, session.pk, 1)
    assert fresh(session).status == Status.TERMINATED


def exit_of(session: Session, exit_code: int, *, attempt: int = 1, out_of_memory: bool = False) -> ContainerState:
    return ContainerState(
        session=session.pk,
        attempt=attempt,
        container_id=session.container_id,
        phase=ContainerPhase.EXITED,
        exit_code=exit_code,
        out_of_memory=out_of_memory,
    )


@pytest.mark.parametrize(
    ("exit_code", "out_of_memory", "status", "reason"),
    [
        (0, False, Status.TERMINATED, Reason.CONTAINER_EXITED),
        (3, False, Status.ERROR, Reason.CONTAINER_EXITED),
        (137, True, Status.ERROR, Reason.OUT_OF_MEMORY),
    ],
)
def test_an_exit_ends_the_session_with_its_cause(
    runtime: FaultInjectingRuntime, exit_code: int, out_of_memory: bool, status: Status, reason: Reason
) -> None:
    session = started(runtime)
    state = exit_of(session, exit_code, out_of_memory=out_of_memory)
    for _ in range(2):
        runner.note_exit(runtime, state)
    stored = fresh(session)
    assert (stored.status, stored.reason, stored.exit_code) == (status, reason, exit_code)
    assert runtime.containers() == []
    assert not has_lease(session)
    assert session.events.count() == 4


def test_requested_exit_keeps_its_reason(runtime: FaultInjectingRuntime) -> None:
    session = stopping(runtime)
    runner.note_exit(runtime, exit_of(session, 143))
    stored = fresh(session)
    assert (stored.status, stored.reason, stored.exit_code) == (Status.TERMINATED, Reason.USER_REQUEST, 143)


def test_an_exit_during_a_stop_frees_the_lease(
    runtime: FaultInjectingRuntime,
) -> None:
    session = stopping(runtime)
    cleared: list[bool] = []
    runtime.just_before("remove", lambda: cleared.append(True))

    def hear_of_it() -> None:
        runner.note_exit(runtime, exit_of(session, 143))
        assert not has_lease(session)
        assert not cleared

    runtime.just_before("stop", hear_of_it)
    runner.stop(runtime, session.pk, 1)
    assert cleared
    assert runtime.containers() == []
    stored = fresh(session)
    assert (stored.status, stored.exit_code) == (Status.TERMINATED, 143)
    assert stored.log_tail == f"{session.pk} ready\n"


def test_exits_of_other_attempts_are_ignored(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    runner.note_exit(runtime, exit_of(session, 1, attempt=2))
    runner.note_exit(runtime, exit_of(Session(id="unknown"), 1))
    assert fresh(session).status == Status.RUNNING
    assert phases(runtime) == [ContainerPhase.RUNNING]


def test_exit_during_termination_is_left_to_the_stop(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    stale = runner._read(session.pk, 1, Status.RUNNING)
    assert stale
    end(session)
    runner.note_lost(runtime, stale)
    assert fresh(session).status == Status.TERMINATING
