"""The host worker's background work: it survives failures, says when its engine is away, and ends without a trace."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hostworker import agent as agent_module
from hostworker import runner
from hostworker.agent import HostAgent
from hostworker.runtime.base import EngineUnreachable
from hostworker.tests.meddling import MeddledRuntime
from resources import services as hosts
from resources.models import Host, HostStatus
from scheduler.passes import run_pass
from sessions import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_host, session_in
from tests.queues import take_all
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the periods, which only bound how long these tests wait."""
    monkeypatch.setattr(agent_module, "RECONCILE_SECONDS", 0.05)
    monkeypatch.setattr(hosts, "HEARTBEAT_SECONDS", 0.05)


@pytest.fixture
def runtime() -> MeddledRuntime:
    return MeddledRuntime()


@pytest.fixture
def host() -> Host:
    return make_host(status=HostStatus.JOINING)


@contextmanager
def at_work(runtime: MeddledRuntime, host: Host) -> Iterator[HostAgent]:
    """Let an agent work, and expect it to leave no thread of its own behind."""
    agent = HostAgent(runtime, host)
    agent.begin()
    try:
        yield agent
    finally:
        agent.end()
    assert not [thread for thread in own_threads(agent) if thread.is_alive()]


def own_threads(agent: HostAgent) -> list[threading.Thread]:
    return [*agent._threads, *agent._starts._threads, *agent._stops._threads]


def has(host: Host, status: HostStatus) -> Callable[[], bool]:
    return lambda: Host.objects.filter(pk=host.pk, status=status).exists()


def is_in(session: Session, status: Status) -> Callable[[], bool]:
    return lambda: Session.objects.filter(pk=session.pk, status=status).exists()


def test_a_host_whose_engine_answers_is_ready_at_once_and_kicks_the_scheduler(
    runtime: MeddledRuntime, host: Host
) -> None:
    take_all("scheduler")
    with at_work(runtime, host):
        assert has(host, HostStatus.READY)()
        assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


def test_a_host_without_its_engine_takes_no_sessions_until_it_is_back(
    runtime: MeddledRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with at_work(runtime, host):
        run_pass()  # answers the first kick
        take_all("scheduler")
        runtime.fail_next("containers", EngineUnreachable("away"), times=10_000)
        until(has(host, HostStatus.JOINING))
        with runtime._engine.lock:
            runtime._engine.failures.clear()
        until(has(host, HostStatus.READY))
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]
    assert caplog.text.count("its container engine does not answer: away") == 1


def test_an_engine_that_is_away_from_the_start_is_reported_once(
    runtime: MeddledRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.fail_next("containers", EngineUnreachable("away"), times=3)
    with at_work(runtime, host):
        until(has(host, HostStatus.READY))
    assert caplog.text.count("its container engine does not answer: away") == 1


def test_a_lost_host_that_is_back_is_reconciled_before_it_is_ready(runtime: MeddledRuntime, host: Host) -> None:
    session = session_in(Status.RUNNING, host=host)
    Host.objects.filter(pk=host.pk).update(status=HostStatus.LOST)
    with at_work(runtime, host):
        assert has(host, HostStatus.READY)()
        assert is_in(session, Status.ERROR)()


def test_the_host_is_heard_for_as_long_as_its_agent_works(runtime: MeddledRuntime, host: Host) -> None:
    with at_work(runtime, host):
        first = Host.objects.get(pk=host.pk).heartbeat_at
        until(lambda: Host.objects.get(pk=host.pk).heartbeat_at > first)


def test_sessions_are_taken_up_and_an_exit_is_heard_by_its_event(
    runtime: MeddledRuntime, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "RECONCILE_SECONDS", 3600)  # so that only the event can tell
    session = session_in(Status.SCHEDULED, host=host)
    listening = threading.Event()
    runtime.just_before("_exits", listening.set)
    with at_work(runtime, host):
        until(is_in(session, Status.RUNNING))
        assert listening.wait(SECONDS)
        runtime.end(session.pk, 1, exit_code=4)
        until(is_in(session, Status.ERROR))
    assert Session.objects.get(pk=session.pk).exit_code == 4


def test_no_exception_ends_a_loop(runtime: MeddledRuntime, host: Host, caplog: pytest.LogCaptureFixture) -> None:
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
        until(lambda: "start failed" in caplog.text)
        until(is_in(other, Status.RUNNING))


def test_an_agent_begins_although_its_first_look_fails(runtime: MeddledRuntime, host: Host) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of ours")

    runtime.just_before("containers", fail)
    with at_work(runtime, host):
        until(has(host, HostStatus.READY))


def test_a_broken_stream_of_exits_is_opened_again(
    runtime: MeddledRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with at_work(runtime, host):
        runtime.fail_next("exits", EngineUnreachable("broken"))
        until(lambda: "listen failed, will try again: broken" in caplog.text)
        assert "Traceback" not in caplog.text
        listening = threading.Event()
        runtime.just_before("_exits", listening.set)
        assert listening.wait(SECONDS)


def test_starts_that_take_long_hold_up_no_stop_and_are_not_piled_up(runtime: MeddledRuntime, host: Host) -> None:
    """As when every start waits for one large image."""
    go_on = threading.Event()
    running = session_in(Status.SCHEDULED, host=host)
    runner.start(runtime, running.pk, 1)
    slow = [session_in(Status.SCHEDULED, host=host) for _ in range(agent_module.AT_ONCE + 2)]

    class SlowRuntime(MeddledRuntime):
        """Every image takes until `go_on`."""

        def __init__(self, other: MeddledRuntime) -> None:
            super().__init__()
            self._engine = other._engine

        def ensure_image(self, reference: str, on_progress: Callable[[str], None]) -> None:
            assert go_on.wait(SECONDS)

    with at_work(SlowRuntime(runtime), host) as agent:
        until(lambda: Session.objects.filter(status=Status.PREPARING).count() == agent_module.AT_ONCE)
        services.end(Session.objects.get(pk=running.pk), Reason.USER_REQUEST, "")
        until(is_in(running, Status.TERMINATED))
        agent.reconcile()
        assert agent._starts._work_queue.qsize() == 2
        go_on.set()
        until(lambda: Session.objects.filter(status=Status.RUNNING).count() == len(slow))
