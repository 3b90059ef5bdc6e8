"""A session that floods its output is slowed down, and named to its owner and to superadmins."""

import pytest

from hostworker.agent.output_watch import OutputWatch
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime.tests.runtime_worlds import make_spec
from notifications.delivery.texts import text_of
from notifications.models import Notification
from resources.models import Host, HostStatus
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_host, make_user, run_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> MemoryRuntime:
    """A runtime on an engine of its own."""
    return MemoryRuntime("installation", "here", f"memory://{request.node.name}")


@pytest.fixture
def host() -> Host:
    """A host that takes sessions."""
    return make_host(name="here", status=HostStatus.READY)


def start(runtime: MemoryRuntime, host: Host) -> Session:
    """Return a session that runs."""
    session = run_session(host=host)
    runtime.create(make_spec("image", session=session.pk, attempt=session.attempt))
    runtime.start(session.pk, session.attempt)
    return session


def test_a_flood_is_slowed_down_and_told_once(runtime: MemoryRuntime, host: Host) -> None:
    admin = make_user(is_superuser=True)
    session, quiet = start(runtime, host), start(runtime, host)
    runtime.change(session.pk, session.attempt, is_flooding=True)
    watch = OutputWatch(runtime, host)
    watch.poll()
    assert runtime.outputs.slowed() == {(session.pk, session.attempt)}
    assert not session.events.filter(reason=Reason.OUTPUT_SLOWED).exists(), "it may have been a burst"
    for _ in range(3):
        watch.poll()
    assert session.events.filter(reason=Reason.OUTPUT_SLOWED).count() == 1
    assert not quiet.events.filter(reason=Reason.OUTPUT_SLOWED).exists()
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    told = Notification.objects.get(kind="OUTPUT_FLOOD")
    assert (told.user, told.facts["host"]) == (admin, host.name)
    assert text_of(told).title == f"{session.name} floods its output"


def test_a_host_without_floods_writes_nothing(runtime: MemoryRuntime, host: Host) -> None:
    session = start(runtime, host)
    OutputWatch(runtime, host).poll()
    assert not session.events.filter(reason=Reason.OUTPUT_SLOWED).exists()
