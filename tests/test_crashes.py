"""A host worker that is killed at any step of a start or stop leaves nothing lost, left over or started twice."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import docker
import pytest
from docker.models.containers import Container

from engine.containers import HOST_LABEL, SESSION_LABEL
from hostworker.runtime.sandboxes.containers import FREE, SANDBOX_LABEL, sandbox_name
from resources.amounts.units import GIB, MIB
from resources.gpus.discovery import Device, Machine
from resources.hosts.services import declare_joining, declare_ready, register_host
from resources.models import Host, HostStatus, Installation
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import GpuShare, Lease, Session
from tests import factories
from tests.containers import remove_containers
from tests.crashing import CRASH_AT
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

CRASHING = "tests.crashing.CrashingRuntime"
START_STEPS = [
    "after create",
    *(
        pytest.param(step, marks=pytest.mark.long)
        for step in ("before has", "before create", "before start", "after start")
    ),
]
STOP_STEPS = [
    "after stop",
    *(
        pytest.param(step, marks=pytest.mark.long)
        for step in ("before stop", "before logs", "before remove", "after remove")
    ),
]


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def host(engine: docker.DockerClient) -> Iterator[Host]:
    """A registered host of 2 fGPU; what its workers leave in the engine is removed at the end."""
    name = f"crash-{uuid4().hex[:8]}"
    device = Device(uuid=f"GPU-{uuid4()}", index=0, name="Simulated GPU", memory=8 * GIB, is_simulated=True)
    group = factories.make_group()
    yield register_host(name, Machine(cpu=2, memory=4 * GIB, devices=(device,)), group.name)
    remove_containers(f"{HOST_LABEL}={name}")


def containers_of(engine: docker.DockerClient, host_name: str, kind: str = SESSION_LABEL) -> list[Container]:
    """Return the host's containers of sessions, or its sandboxes, or with kind HOST_LABEL all."""
    found: list[Container] = engine.containers.list(
        all=True, ignore_removed=True, filters={"label": [f"{HOST_LABEL}={host_name}", kind]}
    )
    return found


def names_of_sandboxes(engine: docker.DockerClient, host_name: str) -> set[str]:
    return {str(each.name) for each in containers_of(engine, host_name, SANDBOX_LABEL)}


def used_sandboxes(engine: docker.DockerClient, host_name: str) -> set[str]:
    """Return those of sessions; a free one that a killed worker had asked the engine for may come after the next's end.

    The worker after that adopts or removes it.
    """
    return {name for name in names_of_sandboxes(engine, host_name) if not name.startswith(FREE)}


@contextmanager
def noted_events(host_name: str) -> Iterator[list[str]]:
    """Yield what happens to the host's containers of sessions as it happens: start, destroy.

    Asked afterwards, the engine would know the last few hundred events alone, of all containers of all tests.
    """
    engine = docker.from_env(timeout=2 * int(SECONDS))
    filters = {"label": [f"{HOST_LABEL}={host_name}", SESSION_LABEL], "event": ["start", "destroy"]}
    stream, noted = engine.events(since=int(time.time()), filters=filters, decode=True), list[str]()

    def follow() -> None:
        for event in stream:
            noted.append(event["Action"])

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield noted
    finally:
        stream.close()
        follower.join()
        engine.close()


def order(host: Host) -> services.LaunchRequest:
    image = factories.make_image(reference=ensure_tiny_image())
    return services.LaunchRequest(
        image=image, resource_group=host.group, cpu=1, memory=256 * MIB, shared_memory=16 * MIB, fgpu=2000
    )


def place(host: Host) -> Session:
    """Return a session that is scheduled on the host, whose worker has yet to come."""
    (session,) = services.submit(factories.make_user(), order(host))
    declare_ready(host)
    assert run_pass() == 1
    declare_joining(host)
    return session


def status_of(session: Session) -> str:
    return Session.objects.values_list("status", flat=True).get(pk=session.pk)


@pytest.mark.parametrize("step", START_STEPS)
def test_a_worker_killed_during_start_loses_nothing(step: str, host: Host, engine: docker.DockerClient) -> None:
    session = place(host)
    with noted_events(host.name) as events:
        with host_worker(host.name, COMPUTE_RUNTIME=CRASHING, **{CRASH_AT: step}) as crashed:
            assert crashed.wait(SECONDS) == -9
        assert status_of(session) == Status.PREPARING
        assert Lease.objects.count() == 1

        with host_worker(host.name):
            until(lambda: status_of(session) == Status.RUNNING)
            (container,) = containers_of(engine, host.name)
            assert container.status == "running"
            session.refresh_from_db()
            assert session.container_id == container.id
            services.terminate(session, actor=session.owner)
            until(lambda: status_of(session) == Status.TERMINATED)
            until(lambda: not containers_of(engine, host.name))
        until(lambda: events and events[-1] == "destroy")
        assert events.count("start") == 1
    assert not Lease.objects.exists()
    assert not GpuShare.objects.exists()
    assert not used_sandboxes(engine, host.name)


@pytest.mark.parametrize("step", STOP_STEPS)
def test_a_worker_killed_during_stop_leaves_nothing(step: str, host: Host, engine: docker.DockerClient) -> None:
    session = place(host)
    with host_worker(host.name, COMPUTE_RUNTIME=CRASHING, **{CRASH_AT: step}) as crashed:
        until(lambda: status_of(session) == Status.RUNNING)
        session.refresh_from_db()
        services.terminate(session, actor=session.owner)
        assert crashed.wait(SECONDS) == -9

    declare_joining(host)  # so that it is ready again only when the next worker has looked
    with host_worker(host.name):
        wait_until_ready(host.name)
        until(lambda: status_of(session) == Status.TERMINATED)
        until(lambda: not containers_of(engine, host.name))
    assert not Lease.objects.exists()
    assert not GpuShare.objects.exists()
    assert not used_sandboxes(engine, host.name)


def test_a_session_survives_its_workers_restart(host: Host, engine: docker.DockerClient) -> None:
    session = place(host)
    with host_worker(host.name) as worker:
        until(lambda: status_of(session) == Status.RUNNING)
        worker.kill()
        worker.wait()
    (before,) = containers_of(engine, host.name)
    with host_worker(host.name):
        until(lambda: Host.objects.filter(pk=host.pk, status=HostStatus.READY).exists())
        (after,) = containers_of(engine, host.name)
        assert (after.id, after.attrs["State"]["StartedAt"]) == (before.id, before.attrs["State"]["StartedAt"])
        assert status_of(session) == Status.RUNNING


@pytest.mark.long
def test_a_session_that_ended_without_worker_is_noticed(host: Host, engine: docker.DockerClient) -> None:
    session = place(host)
    with host_worker(host.name) as worker:
        until(lambda: status_of(session) == Status.RUNNING)
        worker.kill()
        worker.wait()
    (container,) = containers_of(engine, host.name)
    container.kill()
    with host_worker(host.name):
        wait_until_ready(host.name)
        until(lambda: status_of(session) == Status.ERROR)
        until(lambda: not containers_of(engine, host.name))
    session.refresh_from_db()
    assert session.exit_code == 137
    assert not Lease.objects.exists()


@pytest.mark.long
def test_a_killed_workers_sandboxes_are_adopted_or_removed(host: Host, engine: docker.DockerClient) -> None:
    def free() -> set[str]:
        return {name for name in names_of_sandboxes(engine, host.name) if name.startswith(FREE)}

    with host_worker(host.name, COMPUTE_SANDBOX_POOL="2") as worker:
        wait_until_ready(host.name)
        until(lambda: len(free()) == 2)
        first = free()
        (session,) = services.submit(factories.make_user(), order(host))
        assert run_pass() == 1
        until(lambda: status_of(session) == Status.RUNNING)
        worker.kill()
        worker.wait()
    used = sandbox_name((session.pk, 1), Installation.current_key())
    before = names_of_sandboxes(engine, host.name)
    assert used in before
    (container,) = containers_of(engine, host.name)
    container.remove(force=True)
    with host_worker(host.name, COMPUTE_SANDBOX_POOL="2"):
        until(lambda: status_of(session) == Status.ERROR)
        until(lambda: used not in names_of_sandboxes(engine, host.name) and len(free()) == 2)
        assert free() & first
    assert not names_of_sandboxes(engine, host.name)
