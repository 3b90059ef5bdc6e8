"""A preemptible batch session is ended in its container for another session, and begins anew once that has ended."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import docker
import pytest

from engine.containers import HOST_LABEL, SESSION_LABEL
from resources.amounts.units import GIB, MIB
from resources.gpus.discovery import Machine
from resources.hosts.services import register_host
from resources.models import Host, Image
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Lease, Session
from tests import factories
from tests.containers import remove_containers
from tests.tiny_image import ensure_tiny_image
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def host() -> Iterator[Host]:
    """A host of two cores; what its worker leaves in the engine is removed at the end."""
    name, group = f"preempt-{uuid4().hex[:8]}", factories.make_group(preemption_grace=timedelta(0))
    yield register_host(name, Machine(cpu=2, memory=4 * GIB, devices=()), group.name)
    remove_containers(f"{HOST_LABEL}={name}")


def running_on(host: Host) -> list[str]:
    """Return the ids of the sessions whose containers run on the host."""
    engine = docker.from_env()
    try:
        found = engine.containers.list(filters={"label": [f"{HOST_LABEL}={host.name}", SESSION_LABEL]})
        return [container.labels[SESSION_LABEL] for container in found]
    finally:
        engine.close()


def submit(host: Host, image: Image, command: str = "", *, is_preemptible: bool = False) -> Session:
    """Return a session that takes the whole host."""
    (session,) = services.submit(
        factories.make_user(),
        services.LaunchRequest(
            image=image,
            resource_group=host.group,
            cpu=2,
            memory=256 * MIB,
            shared_memory=16 * MIB,
            command=command,
            is_preemptible=is_preemptible,
        ),
    )
    return session


def passed_until(session: Session, status: Status) -> Session:
    """Return the session once it has the status, with a pass at each look."""

    def is_there() -> bool:
        run_pass()
        session.refresh_from_db()
        return session.status == status

    assert until(is_there)
    return session


def test_a_preempted_batch_session_begins_anew_in_a_new_container(host: Host) -> None:
    image = factories.make_image(reference=ensure_tiny_image())
    with host_worker(host.name):
        wait_until_ready(host.name)
        batch = passed_until(submit(host, image, "sleep 1000", is_preemptible=True), Status.RUNNING)
        assert running_on(host) == [batch.pk]
        urgent = passed_until(submit(host, image), Status.RUNNING)
        batch.refresh_from_db()
        assert (batch.status, batch.preemptions) == (Status.PENDING, 1)
        assert batch.events.filter(new_status=Status.TERMINATING, reason=Reason.PREEMPTED).exists()
        assert running_on(host) == [urgent.pk]
        services.terminate(urgent, actor=urgent.owner)
        passed_until(batch, Status.RUNNING)
        assert (batch.attempt, running_on(host)) == (2, [batch.pk])
        services.terminate(batch, actor=batch.owner)
        passed_until(batch, Status.TERMINATED)
    assert not Lease.objects.exists()
