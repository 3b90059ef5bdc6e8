"""What the reconciler finds, as a table; and what it does about it on an engine."""

from collections.abc import Callable

import pytest
from pytest_django import DjangoAssertNumQueries

from hostworker.agent.reconciler import Findings, decide, reconcile
from hostworker.containers import runner, specs
from hostworker.runtime_protocol import ContainerPhase, ContainerState, EngineUnreachableError, Key, RemovalError
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session, started
from resources.models import Host
from sessions.launching import services
from sessions.lifecycle import HOSTED, Reason, Status
from sessions.models import Lease, Session
from tests.factories import make_host, session_in

KEY = ("one", 1)


def container(key: Key = KEY, phase: ContainerPhase = ContainerPhase.RUNNING) -> ContainerState:
    return ContainerState(session=key[0], attempt=key[1], container_id=f"id of {key}", phase=phase)


NOTHING = Findings()
EXITED = container(phase=ContainerPhase.EXITED)
LATER = ("one", 2)


@pytest.mark.parametrize(
    ("before", "containers", "rows", "findings"),
    [
        ([], [], {}, NOTHING),
        ([KEY], [container()], {KEY: Status.RUNNING}, NOTHING),
        ([], [container()], {KEY: Status.RUNNING}, NOTHING),  # came to run meanwhile
        ([], [], {KEY: Status.RUNNING}, NOTHING),  # created after the listing: not lost
        ([KEY], [], {}, NOTHING),  # ended meanwhile: nothing to do
        ([KEY], [], {KEY: Status.RUNNING}, Findings(lost=[KEY])),
        ([KEY], [], {KEY: Status.TERMINATING}, Findings(to_stop=[KEY])),  # was lost, is being ended
        ([KEY], [EXITED], {KEY: Status.RUNNING}, Findings(exited=[EXITED])),
        ([], [EXITED], {KEY: Status.RUNNING}, Findings(exited=[EXITED])),
        ([], [EXITED], {KEY: Status.TERMINATING}, Findings(to_stop=[KEY])),
        ([], [EXITED], {KEY: Status.PREPARING}, Findings(to_start=[KEY])),  # the start finds out
        ([], [container()], {KEY: Status.PREPARING}, Findings(to_start=[KEY])),  # adopted
        ([], [], {KEY: Status.SCHEDULED}, Findings(to_start=[KEY])),  # its message was lost
        ([], [], {KEY: Status.PREPARING}, Findings(to_start=[KEY])),
        ([], [], {KEY: Status.TERMINATING}, Findings(to_stop=[KEY])),
        ([], [container()], {}, Findings(orphans=[KEY])),
        ([KEY], [container()], {}, Findings(orphans=[KEY])),
        ([], [EXITED], {}, Findings(orphans=[KEY])),
        ([], [container()], {LATER: Status.SCHEDULED}, Findings(orphans=[KEY], to_start=[LATER])),
        ([], [container(), container(LATER)], {LATER: Status.RUNNING}, Findings(orphans=[KEY])),
    ],
)
def test_rows_and_containers_are_compared(
    before: list[Key], containers: list[ContainerState], rows: dict[Key, Status], findings: Findings
) -> None:
    assert decide(before, containers, rows) == findings


@pytest.mark.parametrize(
    ("containers", "rows", "orphans"),
    [
        ([], {}, [KEY]),  # its worker died before the container was made, or after it was removed
        ([container()], {}, [KEY]),  # removed once, with its container
        ([], {KEY: Status.PREPARING}, []),  # its start is at work
        ([], {LATER: Status.SCHEDULED}, [KEY]),
    ],
)
def test_traces_that_no_session_owns_are_cleared_away(
    containers: list[ContainerState], rows: dict[Key, Status], orphans: list[Key]
) -> None:
    assert decide([], containers, rows, [KEY]).orphans == orphans


@pytest.mark.parametrize(
    ("containers", "leftovers", "status", "orphans", "to_keep"),
    [
        ([container()], [], Status.PARKED, [], [KEY]),  # to be saved
        ([container()], [], Status.PENDING, [], [KEY]),  # resumed before it was saved
        ([container()], [KEY], Status.PARKED, [], [KEY]),
        ([container()], [], Status.RUNNING, [], []),  # whoever starts the next attempt saves it
        ([], [], Status.PARKED, [], []),
        ([], [KEY], Status.PARKED, [KEY], []),  # traces of what is saved
        ([container(LATER)], [], Status.PARKED, [LATER], []),
    ],
)
def test_containers_of_parked_sessions_are_kept(
    containers: list[ContainerState], leftovers: list[Key], status: Status, orphans: list[Key], to_keep: list[Key]
) -> None:
    findings = decide([], containers, {}, leftovers, {KEY: status})
    assert (findings.orphans, findings.to_keep) == (orphans, to_keep)


@pytest.mark.parametrize("status", sorted(HOSTED))
@pytest.mark.parametrize("phase", [None, *ContainerPhase])
def test_no_container_of_a_hosted_session_is_ever_an_orphan(status: Status, phase: ContainerPhase | None) -> None:
    states = [container(phase=phase)] if phase else []
    assert not decide([KEY], states, {KEY: status}).orphans


@pytest.fixture
def host(db: None) -> Host:
    return make_host()


def at_once(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


def now(session: Session) -> tuple[str, str]:
    session.refresh_from_db()
    return session.status, session.reason


def test_whatever_was_interrupted_is_taken_up_again(runtime: FaultInjectingRuntime, host: Host) -> None:
    scheduled, preparing = session_in(Status.SCHEDULED, host=host), session_in(Status.PREPARING, host=host)
    half_started = session_in(Status.SCHEDULED, host=host)
    runtime.fail_next("start", EngineUnreachableError("away"), happens_after=True)
    start_session(runtime, half_started.pk, 1)
    stopping, going_on = started(runtime, host), started(runtime, host)
    services.terminate(stopping, actor=stopping.owner)
    reconcile(runtime, host, at_once)
    for session in (scheduled, preparing, half_started, going_on):
        assert now(session) == (Status.RUNNING, Reason.STARTED)
    assert now(stopping) == (Status.TERMINATED, Reason.USER_REQUEST)
    assert {state.session for state in runtime.containers()} == set(
        Session.objects.filter(status=Status.RUNNING).values_list("pk", flat=True)
    )


def test_what_ended_unseen_is_ended_with_its_cause(runtime: FaultInjectingRuntime, host: Host) -> None:
    done, failed, starved, removed = (started(runtime, host) for _ in range(4))
    runtime.end(done.pk, 1)
    runtime.end(failed.pk, 1, exit_code=2)
    runtime.end(starved.pk, 1, out_of_memory=True)
    runtime.lose_container(removed.pk, 1)
    reconcile(runtime, host, at_once)
    assert now(done) == (Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert now(failed) == (Status.ERROR, Reason.CONTAINER_EXITED)
    assert now(starved) == (Status.ERROR, Reason.OUT_OF_MEMORY)
    assert now(removed) == (Status.ERROR, Reason.CONTAINER_LOST)
    assert runtime.containers() == []
    assert not Lease.objects.exists()


def test_containers_that_no_live_session_owns_are_removed(runtime: FaultInjectingRuntime, host: Host) -> None:
    ended, moved = started(runtime, host), started(runtime, host)
    ended.move_to(Status.ERROR, Reason.HOST_LOST)
    Session.objects.filter(pk=moved.pk).update(attempt=2)
    runtime.create(specs.spec_of(Session.objects.get(pk=moved.pk)))
    runtime.start(moved.pk, 2)
    reconcile(runtime, host, at_once)
    assert [(state.session, state.attempt) for state in runtime.containers()] == [(moved.pk, 2)]
    ended.refresh_from_db()
    assert ended.log_tail == f"{ended.pk} ready\n"


def test_container_that_cannot_be_removed_holds_up_no_other(runtime: FaultInjectingRuntime, host: Host) -> None:
    stuck, ended, exited = (started(runtime, host) for _ in range(3))
    scheduled = session_in(Status.SCHEDULED, host=host)
    for session in (stuck, ended):
        session.move_to(Status.ERROR, Reason.HOST_LOST)
    runtime.end(exited.pk, 1)
    runtime.fail_next("remove", RemovalError("device or resource busy"))
    reconcile(runtime, host, at_once)
    assert [now(session)[0] for session in (exited, scheduled)] == [Status.TERMINATED, Status.RUNNING]
    left = {state.session for state in runtime.containers()} - {scheduled.pk}
    assert len(left & {stuck.pk, ended.pk}) == len(left) == 1
    reconcile(runtime, host, at_once)
    assert {state.session for state in runtime.containers()} == {scheduled.pk}


def test_sessions_of_other_hosts_are_let_be(runtime: FaultInjectingRuntime, host: Host) -> None:
    others = [session_in(status, host=make_host()) for status in HOSTED]
    reconcile(runtime, host, at_once)
    assert [now(session)[0] for session in others] == list(HOSTED)
    assert runtime.containers() == []


def test_changes_during_a_reconciliation_are_not_mistaken(runtime: FaultInjectingRuntime, host: Host) -> None:
    scheduled, running = session_in(Status.SCHEDULED, host=host), started(runtime, host)

    def both() -> None:
        start_session(runtime, scheduled.pk, 1)
        Session.objects.get(pk=running.pk).move_to(Status.TERMINATING, Reason.USER_REQUEST)
        runner.stop(runtime, running.pk, 1)

    runtime.just_before("containers", both)
    reconcile(runtime, host, at_once)
    assert now(scheduled) == (Status.RUNNING, Reason.STARTED)
    assert now(running) == (Status.TERMINATED, Reason.USER_REQUEST)


def test_without_the_engine_nothing_is_judged(runtime: FaultInjectingRuntime, host: Host) -> None:
    session = started(runtime, host)
    runtime.lose_container(session.pk, 1)
    runtime.fail_next("containers", EngineUnreachableError("away"))
    with pytest.raises(EngineUnreachableError):
        reconcile(runtime, host, at_once)
    assert now(session) == (Status.RUNNING, Reason.STARTED)


def test_what_was_running_in_the_round_before_is_missed(runtime: FaultInjectingRuntime, host: Host) -> None:
    lost, ended, resumed = (started(runtime, host) for _ in range(3))
    running = reconcile(runtime, host, at_once)
    assert set(running) == {(session.pk, 1) for session in (lost, ended, resumed)}
    for session in (lost, ended, resumed):
        runtime.lose_container(session.pk, 1)
    ended.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    Session.objects.filter(pk=resumed.pk).update(attempt=2)
    late = session_in(Status.RUNNING, host=host)  # of which the listing could not know
    assert set(reconcile(runtime, host, at_once, running)) == {(lost.pk, 1), (resumed.pk, 2), (late.pk, 1)}
    assert now(lost) == (Status.ERROR, Reason.CONTAINER_LOST)
    assert now(ended) == (Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert [now(session)[0] for session in (resumed, late)] == [Status.RUNNING] * 2


def test_an_empty_host_costs_no_query(
    runtime: FaultInjectingRuntime, host: Host, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        assert reconcile(runtime, host, at_once, [], may_have_sessions=False) == ()


def test_an_empty_host_removes_containers_of_no_session(runtime: FaultInjectingRuntime, host: Host) -> None:
    ended = started(runtime, host)
    ended.move_to(Status.ERROR, Reason.HOST_LOST)
    reconcile(runtime, host, at_once, [], may_have_sessions=False)
    assert runtime.containers() == []


@pytest.mark.parametrize("count", [1, 30])
def test_a_quiet_host_costs_one_query(
    runtime: FaultInjectingRuntime, host: Host, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    host.cpu = 64
    host.save()
    for _ in range(count):
        started(runtime, host)
    with django_assert_num_queries(2):
        running = reconcile(runtime, host, at_once)
    with django_assert_num_queries(1):
        reconcile(runtime, host, at_once, running)


def test_running_session_without_address_gets_it(runtime: FaultInjectingRuntime, host: Host) -> None:
    session = started(runtime, host)
    known = session.address
    Session.objects.filter(pk=session.pk).update(address=None)
    reconcile(runtime, host, at_once)
    session.refresh_from_db()
    assert session.address == known == runtime.address(session.pk, 1)


def test_what_is_being_started_here_is_not_submitted_again(runtime: FaultInjectingRuntime, host: Host) -> None:
    session = session_in(Status.SCHEDULED, host=host)
    submitted: list[Key] = []

    def reconcile_meanwhile() -> None:
        reconcile(runtime, host, lambda function, *arguments: submitted.append(arguments[1:]))

    runtime.just_before("create", reconcile_meanwhile)
    start_session(runtime, session.pk, 1)
    assert submitted == []
    other = session_in(Status.SCHEDULED, host=host)
    reconcile_meanwhile()
    assert submitted == [(other.pk, 1)]


def test_parked_session_elsewhere_belongs_to_both_hosts(runtime: FaultInjectingRuntime, host: Host) -> None:
    elsewhere = session_in(Status.RUNNING, host=make_host())
    Session.objects.filter(pk=elsewhere.pk).update(parked_on=host, parked_attempt=1)
    assert reconcile(runtime, host, at_once) == []
    assert now(elsewhere) == (Status.RUNNING, Reason.STARTED)
