"""A host with two devices that a CDI file tells of: two sessions hold one each, and a third waits for them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import docker
import pytest

from engine.containers import HOST_LABEL, container_name
from resources.accelerators.tests.trees import GIB, device, node, spec
from resources.amounts.units import MIB
from resources.models import Host, Image
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Session
from tests import factories
from tests.containers import remove_containers
from tests.execs import output_of
from tests.tiny_image import ensure_tiny_image
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A ready host with two devices of example.com/npu, in a group that its worker makes."""
    name = f"npu-{uuid4().hex[:8]}"
    (tmp_path / "nodes").mkdir()
    nodes = [node(tmp_path / "nodes", f"npu{n}", major=10, minor=minor) for n, minor in enumerate((229, 235))]
    devices = [device(str(number), path) for number, path in enumerate(nodes)]
    spec(tmp_path / "cdi", [*devices, device("broken", tmp_path / "nowhere")])
    own = {"COMPUTE_CDI_DIRS": str(tmp_path / "cdi"), "COMPUTE_HOST_GROUP": name, "COMPUTE_SIMULATED_GPUS": "1x8GiB"}
    with host_worker(name, **own):
        wait_until_ready(name)
        yield Host.objects.select_related("group").get(name=name)
    remove_containers(f"{HOST_LABEL}={name}")


def submit(host: Host, image: Image) -> Session:
    order = services.LaunchRequest(
        image=image,
        resource_group=host.group,
        cpu=1,
        memory=64 * MIB,
        shared_memory=16 * MIB,
        fgpu=1000,
    )
    (session,) = services.submit(factories.make_user(is_superuser=True), order)
    return session


def passed_until(session: Session, status: Status) -> Session:
    """Return the session once it has the status, with a pass at each look."""

    def is_there() -> bool:
        run_pass()
        session.refresh_from_db()
        return session.status == status

    assert until(is_there), session.detail
    return session


def nodes_in(session: Session) -> list[str]:
    """Return the device nodes that the session's container has of this kind, and can open."""
    with closing(docker.from_env()) as engine:
        command = "for each in /dev/npu*; do (: < $each) && echo $each; done"
        return output_of(engine.api, container_name(session.pk, session.attempt), command)[1].split()


def test_two_sessions_hold_two_devices_and_a_third_waits(host: Host) -> None:
    assert host.group.accelerator == "example.com/npu", "that of its first host"
    offered = host.gpus.values_list("kind", "name", "memory", "tier", "is_simulated")
    assert list(offered) == [("example.com/npu", "Example NPU", 16 * GIB, "none", False)] * 2
    image = factories.make_image(reference=ensure_tiny_image())
    one, other = (passed_until(submit(host, image), Status.RUNNING) for _ in range(2))
    assert sorted([nodes_in(one), nodes_in(other)]) == [["/dev/npu0"], ["/dev/npu1"]]
    third = submit(host, image)
    run_pass()
    third.refresh_from_db()
    assert (third.status, "Waiting for 1 fGPU" in third.detail) == (Status.PENDING, True)
    mine = nodes_in(one)
    services.terminate(one, actor=one.owner)
    passed_until(third, Status.RUNNING)
    assert nodes_in(third) == mine
    for session in (other, third):
        services.terminate(session, actor=session.owner)
        passed_until(session, Status.TERMINATED)
