"""The host's side of parking: a container is saved before it is removed, whatever happens in between."""

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from engine.containers import saved_reference
from hostworker.agent import reconciler
from hostworker.containers import parking as host_parking
from hostworker.containers import runner
from hostworker.runtime_protocol import ContainerPhase, SaveError, StartError
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session, started
from resources.amounts.units import GIB, MIB
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Lease, Session
from sessions.parking import services as parking
from tests.factories import lease_session, make_policy, make_user, session_in
from tests.queues import take_all

pytestmark = pytest.mark.django_db


def parked(runtime: FaultInjectingRuntime, written: int = 0) -> Session:
    session = started(runtime)
    runtime.change(session.pk, session.attempt, written_bytes=written)
    return park(runtime, session)


def park(runtime: FaultInjectingRuntime, session: Session) -> Session:
    parking.park(session, actor=session.owner)
    runner.stop(runtime, session.pk, session.attempt)
    return Session.objects.get(pk=session.pk)


def resumed(runtime: FaultInjectingRuntime, session: Session) -> Session:
    parking.resume(session, actor=session.owner)
    lease_session(session, session.parked_on)
    start_session(runtime, session.pk, session.attempt)
    return Session.objects.get(pk=session.pk)


def reconcile(runtime: FaultInjectingRuntime, session: Session) -> None:
    assert session.parked_on
    reconciler.reconcile(runtime, session.parked_on, lambda function, *arguments: function(*arguments))


def saved(runtime: FaultInjectingRuntime) -> set[tuple[str, int]]:
    return runtime.saved_containers.keys()


def test_parked_container_is_saved_and_resumed_from_its_files(runtime: FaultInjectingRuntime) -> None:
    session = parked(runtime, written=300)
    assert (session.status, session.reason, session.started_at) == (Status.PARKED, Reason.PARKED, None)
    assert not Lease.objects.exists()
    assert runtime.containers() == []
    assert (saved(runtime), session.parked_bytes) == ({(session.pk, 1)}, 300)
    session = resumed(runtime, session)
    assert (session.status, session.attempt, session.parked_bytes) == (Status.RUNNING, 2, 300)
    spec = runtime.spec(session.pk, 2)
    assert spec
    assert spec.image == saved_reference(session.pk, 1)
    runtime.change(session.pk, 2, written_bytes=50)
    session = park(runtime, session)  # what it wrote before counts on
    assert (session.status, session.parked_bytes) == (Status.PARKED, 350)
    assert session.parked_on
    host_parking.clear_saved(runtime, session.parked_on)
    assert saved(runtime) == {(session.pk, 2)}
    services.terminate(session, actor=session.owner)
    host_parking.clear_saved(runtime, session.parked_on)
    assert saved(runtime) == set()


@pytest.mark.parametrize("step", ["stop", "save_container", "remove"])
def test_parking_survives_a_failure_at_each_step(runtime: FaultInjectingRuntime, step: str) -> None:
    session = started(runtime)
    parking.park(session, actor=session.owner)
    runtime.fail_next(step, SaveError("The disk is full."))
    runner.stop(runtime, session.pk, 1)
    session.refresh_from_db()
    assert [state.session for state in runtime.containers()] == [session.pk]
    assert session.status == (Status.TERMINATING if step == "stop" else Status.PARKED)
    reconcile(runtime, session)
    assert runtime.containers() == []
    assert saved(runtime) == {(session.pk, 1)}
    assert resumed(runtime, Session.objects.get(pk=session.pk)).status == Status.RUNNING


def test_exit_while_being_parked_ends_nothing(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    parking.park(session, actor=session.owner)
    runtime.end(session.pk, 1)
    (state,) = runtime.containers()
    runner.note_exit(runtime, state)
    session.refresh_from_db()
    assert session.status == Status.TERMINATING
    reconcile(runtime, session)
    assert Session.objects.get(pk=session.pk).status == Status.PARKED


def test_end_that_overtakes_parking_saves_nothing(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    parking.park(session, actor=session.owner)
    runtime.just_before("stop", lambda: services.terminate(Session.objects.get(pk=session.pk), actor=session.owner))
    runner.stop(runtime, session.pk, 1)
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATED, Reason.USER_REQUEST)
    assert runtime.containers() == []
    assert saved(runtime) == set()


def test_container_that_ran_on_without_its_host_is_saved(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    parking.park(session, actor=session.owner)
    session.move_to(Status.PARKED, Reason.PARKED)  # as the sweeps do of a lost host
    assert [state.phase for state in runtime.containers()] == [ContainerPhase.RUNNING]
    reconcile(runtime, session)
    assert runtime.containers() == []
    assert saved(runtime) == {(session.pk, 1)}


def test_resume_that_fails_leaves_the_files_parked(runtime: FaultInjectingRuntime) -> None:
    session = parked(runtime)
    runtime.fail_next("create", StartError("No such user.", is_host_fault=False))
    session = resumed(runtime, session)
    assert (session.status, session.reason, session.detail) == (Status.PARKED, Reason.RESUME_FAILED, "No such user.")
    assert not Lease.objects.exists()
    assert saved(runtime) == {(session.pk, 1)}
    session = resumed(runtime, session)
    assert (session.status, session.attempt) == (Status.RUNNING, 3)


def test_host_that_keeps_failing_leaves_the_session_parked(runtime: FaultInjectingRuntime) -> None:
    session = parked(runtime)
    parking.resume(session, actor=session.owner)
    for _ in range(4):
        session.refresh_from_db()
        lease_session(session, session.parked_on)
        runtime.fail_next("start", StartError("The runtime failed."))
        start_session(runtime, session.pk, session.attempt)
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.PARKED, Reason.RESUME_FAILED)


def test_files_that_are_gone_end_the_session_when_resumed(runtime: FaultInjectingRuntime) -> None:
    session = parked(runtime)
    runtime.saved_containers.discard(session.pk, 1)
    session = resumed(runtime, session)
    assert (session.status, session.reason) == (Status.ERROR, Reason.FILES_LOST)


def test_last_output_stays_with_the_parked_session(runtime: FaultInjectingRuntime) -> None:
    session = started(runtime)
    for line in ("x" * host_parking.LOG_TAIL_CHARACTERS, "the\0end"):
        runtime.write_log(session.pk, 1, line)
    session = park(runtime, session)
    assert len(session.log_tail) == host_parking.LOG_TAIL_CHARACTERS
    assert session.log_tail.endswith("x\ntheend\n")


def test_scheduler_is_told_once_a_session_is_parked(
    runtime: FaultInjectingRuntime, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    session = started(runtime)
    parking.park(session, actor=session.owner)
    take_all("scheduler")
    with django_capture_on_commit_callbacks(execute=True):
        runner.stop(runtime, session.pk, 1)
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


@pytest.mark.parametrize(
    ("limit", "written", "left"),
    [(None, 5, None), (GIB, 0, GIB), (GIB, GIB // 4, GIB * 3 // 4), (GIB, 2 * GIB, 64 * MIB), (MIB, MIB, MIB)],
)
def test_what_was_saved_counts_as_written(limit: int | None, written: int, left: int | None) -> None:
    session = session_in(Status.SCHEDULED, owner=make_user(policy=make_policy(disk_bytes=limit)))
    session.parked_bytes = written
    assert host_parking.disk_left(session) == left


def test_failed_resume_of_a_session_ended_meanwhile_changes_nothing(runtime: FaultInjectingRuntime) -> None:
    session = parked(runtime)

    def end_and_fail() -> None:
        services.terminate(Session.objects.get(pk=session.pk), actor=session.owner)
        runtime.fail_next("create", StartError("No such user.", is_host_fault=False))

    runtime.just_before("create", end_and_fail)
    ended = resumed(runtime, session)
    assert (ended.status, ended.reason) == (Status.TERMINATING, Reason.USER_REQUEST)
    assert saved(runtime) == {(session.pk, 1)}


@pytest.mark.parametrize("status", [Status.RUNNING, Status.TERMINATED])
def test_only_a_session_at_rest_is_saved(runtime: FaultInjectingRuntime, status: Status) -> None:
    session = started(runtime)
    Session.objects.filter(pk=session.pk).update(parked_attempt=1)
    if status == Status.TERMINATED:
        session.move_to(status, Reason.CONTAINER_EXITED)
    runner.keep_parked(runtime, session.pk, 1)
    assert saved(runtime) == set()
    assert len(runtime.containers()) == 1


def test_saving_once_more_forgets_no_output(runtime: FaultInjectingRuntime) -> None:
    session = parked(runtime)
    assert session.log_tail
    runner.keep_parked(runtime, session.pk, 1)
    assert Session.objects.get(pk=session.pk).log_tail == session.log_tail


def test_the_next_start_saves_what_is_not_saved_yet(runtime: FaultInjectingRuntime) -> None:
    runtime.fail_next("save_container", SaveError("The disk is full."))
    session = park(runtime, started(runtime))
    assert saved(runtime) == set()
    session = resumed(runtime, session)
    assert (session.status, saved(runtime)) == (Status.RUNNING, {(session.pk, 1)})
    assert [state.attempt for state in runtime.containers()] == [2]
