"""The host worker's background work: it survives failures, says when its engine is away, and ends without a trace."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from hostworker.agent import due_work
from hostworker.agent import worker as worker_module
from hostworker.agent.due_work import Work
from hostworker.agent.kernel_watch import KernelWatch
from hostworker.agent.worker import HostWorker
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime_protocol import ContainerSpec, EngineUnreachableError
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session
from resources.hosts import services as hosts
from resources.models import Host, HostHealth, HostStatus, ImagePull, PullState
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Conversion, ConversionState, Session
from tests.factories import make_host, make_image, make_session, session_in
from tests.queues import take_all
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the periods, which only bound how long these tests wait."""
    monkeypatch.setattr(worker_module, "RECONCILE_SECONDS", 0.05)
    monkeypatch.setattr(hosts, "HEARTBEAT_SECONDS", 0.05)


@pytest.fixture
def host() -> Host:
    return make_host(status=HostStatus.JOINING)


@contextmanager
def at_work(runtime: FaultInjectingRuntime, host: Host) -> Iterator[HostWorker]:
    """Let a worker work, and expect it to leave no thread of its own behind."""
    worker = HostWorker(runtime, host)
    worker.begin()
    try:
        yield worker
    finally:
        worker.end()
    assert not [thread for thread in own_threads(worker) if thread.is_alive()]


def own_threads(worker: HostWorker) -> list[threading.Thread]:
    return [*worker._threads, *worker._starts._threads, *worker._stops._threads]


def has(host: Host, status: HostStatus) -> Callable[[], bool]:
    return lambda: Host.objects.filter(pk=host.pk, status=status).exists()


def is_in(session: Session, status: Status) -> Callable[[], bool]:
    return lambda: Session.objects.filter(pk=session.pk, status=status).exists()


def test_host_with_engine_is_ready_and_kicks_scheduler(runtime: FaultInjectingRuntime, host: Host) -> None:
    take_all("scheduler")
    with at_work(runtime, host):
        assert has(host, HostStatus.READY)()
        assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


def test_host_without_engine_takes_no_sessions(
    runtime: FaultInjectingRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with at_work(runtime, host):
        run_pass()  # answers the first kick
        take_all("scheduler")
        runtime.fail_next("containers", EngineUnreachableError("away"), times=10_000)
        until(has(host, HostStatus.JOINING))
        with runtime.engine.lock:
            runtime.engine.failures.clear()
        until(has(host, HostStatus.READY))
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]
    assert caplog.text.count("its container engine does not answer: away") == 1


def test_engine_missing_from_the_start_is_reported_once(
    runtime: FaultInjectingRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.fail_next("containers", EngineUnreachableError("away"), times=3)
    with at_work(runtime, host):
        until(has(host, HostStatus.READY))
    assert caplog.text.count("its container engine does not answer: away") == 1


def test_returning_host_is_reconciled_before_ready(runtime: FaultInjectingRuntime, host: Host) -> None:
    session = session_in(Status.RUNNING, host=host)
    Host.objects.filter(pk=host.pk).update(status=HostStatus.LOST)
    with at_work(runtime, host):
        assert has(host, HostStatus.READY)()
        assert is_in(session, Status.ERROR)()


def test_loops_that_wait_for_rows_find_them(
    runtime: FaultInjectingRuntime, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = HostWorker(runtime, host)
    for _ in range(2):  # everything is due at first, whatever the rows say
        for loop, _ in worker.loops:
            loop()
    assert has(host, HostStatus.READY)()
    monkeypatch.setattr(due_work, "ASK_SECONDS", 0)
    past = timezone.now() - timedelta(minutes=1)
    pull = ImagePull.objects.create(host=host, image=make_image())
    left = {"state": ConversionState.SAVING, "name": "mine", "tag": "1", "reference": "mine:1"}
    conversion = Conversion.objects.create(session=make_session(), host=host, **left)
    health = HostHealth.objects.create(host=host, faulty_since=past, probe_at=past)
    hosts.declare_joining(host)
    for loop, _ in worker.loops:
        loop()
    for row in (pull, conversion, health):
        row.refresh_from_db()
    assert (pull.state, conversion.state, health.faulty_since) == (PullState.DONE, ConversionState.FAILED, None)
    assert has(host, HostStatus.READY)()
    worker.end()


def test_heartbeat_lasts_as_long_as_the_worker(runtime: FaultInjectingRuntime, host: Host) -> None:
    with at_work(runtime, host):
        first = Host.objects.get(pk=host.pk).heartbeat_at
        until(lambda: Host.objects.get(pk=host.pk).heartbeat_at > first)


def test_worker_starts_sessions_and_hears_exit_events(
    runtime: FaultInjectingRuntime, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "RECONCILE_SECONDS", 3600)  # so that only the event can tell
    session = session_in(Status.SCHEDULED, host=host)
    listening = threading.Event()
    runtime.just_before("_exits", listening.set)
    with at_work(runtime, host):
        until(is_in(session, Status.RUNNING))
        assert listening.wait(SECONDS)
        runtime.end(session.pk, 1, exit_code=4)
        until(is_in(session, Status.ERROR))
    assert Session.objects.get(pk=session.pk).exit_code == 4


def test_an_absent_database_fills_no_log_with_tracebacks(
    runtime: FaultInjectingRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def heartbeat(host: Host) -> bool:
        raise OperationalError("the server does not answer")

    worker = HostWorker(runtime, host)
    worker._once(heartbeat, host)
    assert "heartbeat failed, will try again: the server does not answer" in caplog.text
    assert "Traceback" not in caplog.text


def test_no_exception_ends_a_loop(runtime: FaultInjectingRuntime, host: Host, caplog: pytest.LogCaptureFixture) -> None:
    broken = RuntimeError("a fault of ours")

    def fail() -> None:
        raise broken

    with at_work(runtime, host):
        runtime.just_before("containers", fail)
        until(lambda: "reconcile failed" in caplog.text)
        session = session_in(Status.SCHEDULED, host=host)
        until(is_in(session, Status.RUNNING))
        runtime.just_before("create", fail)
        other = session_in(Status.SCHEDULED, host=host)
        until(lambda: "begin failed" in caplog.text)
        until(is_in(other, Status.RUNNING))


def test_an_worker_begins_although_its_first_look_fails(runtime: FaultInjectingRuntime, host: Host) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of ours")

    runtime.just_before("containers", fail)
    with at_work(runtime, host):
        until(has(host, HostStatus.READY))


def test_a_broken_stream_of_exits_is_opened_again(
    runtime: FaultInjectingRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    listening, again = threading.Event(), threading.Event()
    runtime.just_before("_exits", listening.set)
    with at_work(runtime, host):
        assert listening.wait(SECONDS)
        runtime.just_before("_exits", again.set)
        runtime.fail_next("exits", EngineUnreachableError("broken"))
        until(lambda: "listen failed, will try again: broken" in caplog.text)
        assert "Traceback" not in caplog.text
        assert again.wait(SECONDS)


def test_slow_starts_delay_no_stop_nor_pile_up(runtime: FaultInjectingRuntime, host: Host) -> None:
    """As when the engine is slow."""
    go_on = threading.Event()
    running = session_in(Status.SCHEDULED, host=host)
    start_session(runtime, running.pk, 1)
    slow = [session_in(Status.SCHEDULED, host=host) for _ in range(worker_module.MAX_CONCURRENT + 2)]

    class SlowRuntime(FaultInjectingRuntime):
        """Every container takes until `go_on`."""

        def __init__(self, other: FaultInjectingRuntime) -> None:
            super().__init__()
            self.engine = other.engine

        def create(self, spec: ContainerSpec) -> str:
            assert go_on.wait(SECONDS)
            return super().create(spec)

    with at_work(SlowRuntime(runtime), host) as worker:
        until(lambda: Session.objects.filter(status=Status.PREPARING).count() == worker_module.MAX_CONCURRENT)
        services.end(Session.objects.get(pk=running.pk), Reason.USER_REQUEST, "")
        until(is_in(running, Status.TERMINATED))
        worker.reconcile()
        assert worker._starts._work_queue.qsize() == 2
        go_on.set()
        until(lambda: Session.objects.filter(status=Status.RUNNING).count() == len(slow))


def test_the_kernel_watch_takes_no_turn_from_the_reconciler(runtime: FaultInjectingRuntime, host: Host) -> None:
    kernel = KernelWatch(host, HostPrivileges())
    worker = HostWorker(runtime, host, kernel=kernel)
    assert kernel.may_have_sessions()  # nothing is known yet
    assert worker._due.is_due(Work.SESSIONS)  # as all is now and then
    worker.reconcile()
    assert not kernel.may_have_sessions()
    session = session_in(Status.SCHEDULED, host=host)
    start_session(runtime, session.pk, session.attempt)
    worker.reconcile()
    assert kernel.may_have_sessions()
