"""What sessions write to their host's disk is bounded, and whoever fills it is the one that ends."""

import pytest

from hostworker import disk_watch
from hostworker.disk_watch import DiskWatch
from hostworker.runtime.base import DiskSpace, ExecResult
from hostworker.runtime.memory import MemoryRuntime
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.worker import HostWorker
from resources.models import Host, HostStatus
from resources.units import GIB, MIB
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_host, make_policy, make_user, run_session

pytestmark = pytest.mark.django_db
RESERVE = 2 * GIB


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> MemoryRuntime:
    """A runtime on an engine of its own."""
    return MemoryRuntime("installation", "here", f"memory://{request.node.name}")


@pytest.fixture
def host() -> Host:
    """A host that takes sessions."""
    return make_host(name="here", status=HostStatus.READY)


def written(runtime: MemoryRuntime, host: Host, size_bytes: int, limit: int | None) -> Session:
    """Return a session that runs and has written so much."""
    session = run_session(host=host, owner=make_user(policy=make_policy(disk_bytes=limit)))
    runtime.create(make_spec("image", session=session.pk, attempt=session.attempt))
    runtime.start(session.pk, session.attempt)
    runtime.set_written(session.pk, session.attempt, size_bytes)
    return session


def state(session: Session) -> tuple[str, str]:
    """Return status and reason as they are now."""
    session.refresh_from_db()
    return session.status, session.reason


def test_a_session_is_warned_once_and_then_ended(runtime: MemoryRuntime, host: Host) -> None:
    messages: list[str] = []

    def program(_: object, environment: dict[str, str]) -> ExecResult:
        messages.append(environment["GP_TEXT"])
        return ExecResult(exit_code=0, output="")

    runtime.set_exec_handler(program)  # type: ignore[arg-type]  # of a mapping
    session = written(runtime, host, 95 * MIB, 100 * MIB)
    modest, unlimited = written(runtime, host, 50 * MIB, 100 * MIB), written(runtime, host, 99 * GIB, None)
    for _ in range(2):
        DiskWatch(runtime, host, RESERVE).poll()
    assert state(session)[0] == Status.RUNNING
    assert len(messages) == session.events.filter(reason=Reason.DISK_NEARLY_FULL).count() == 1
    assert "95 MiB" in messages[0]
    runtime.set_written(session.pk, session.attempt, 101 * MIB)
    DiskWatch(runtime, host, RESERVE).poll()
    assert state(session) == (Status.TERMINATING, Reason.DISK_LIMIT)
    assert {state(each)[0] for each in (modest, unlimited)} == {Status.RUNNING}


def test_layers_are_measured_once_a_minute(runtime: MemoryRuntime, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = DiskWatch(runtime, host, RESERVE)
    watch.poll()
    session = written(runtime, host, 101 * MIB, 100 * MIB)
    watch.poll()
    assert state(session)[0] == Status.RUNNING
    monkeypatch.setattr(disk_watch, "MEASURE_SECONDS", 0)
    watch.poll()
    assert state(session)[0] == Status.TERMINATING


def test_the_largest_session_ends_when_the_disk_is_almost_full(runtime: MemoryRuntime, host: Host) -> None:
    large, small = written(runtime, host, 3 * GIB, None), written(runtime, host, GIB, None)
    watch = DiskWatch(runtime, host, RESERVE)
    runtime.set_disk_space(DiskSpace(free_bytes=RESERVE * 3 // 4, total_bytes=99 * GIB))
    watch.poll()
    assert (watch.is_short, state(large)[0]) == (True, Status.RUNNING)
    runtime.set_disk_space(DiskSpace(free_bytes=RESERVE // 4, total_bytes=99 * GIB))
    watch.poll()
    assert state(large) == (Status.TERMINATING, Reason.DISK_LIMIT)
    assert state(small)[0] == Status.RUNNING
    runtime.set_disk_space(DiskSpace(free_bytes=RESERVE * 2, total_bytes=99 * GIB))
    watch.poll()
    assert not watch.is_short


def test_nobody_is_blamed_for_a_disk_that_others_fill(runtime: MemoryRuntime, host: Host) -> None:
    session = written(runtime, host, MIB, None)
    runtime.set_disk_space(DiskSpace(free_bytes=0, total_bytes=99 * GIB))
    DiskWatch(runtime, host, RESERVE).poll()
    assert state(session)[0] == Status.RUNNING


@pytest.mark.django_db(transaction=True)
def test_a_host_without_space_takes_no_sessions(runtime: MemoryRuntime, host: Host) -> None:
    worker = HostWorker(runtime, host)
    runtime.set_disk_space(DiskSpace(free_bytes=0, total_bytes=99 * GIB))
    worker.watch_disk()
    worker.reconcile()
    assert Host.objects.get().status == HostStatus.JOINING
    runtime.set_disk_space(DiskSpace(free_bytes=99 * GIB, total_bytes=99 * GIB))
    worker.watch_disk()
    worker.reconcile()
    assert Host.objects.get().status == HostStatus.READY
