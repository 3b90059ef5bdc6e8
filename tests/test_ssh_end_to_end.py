"""What a real host worker starts is entered through a real SSH server, by its session key."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from accounts.credentials.ssh_keys import add_ssh_key
from engine.containers import HOST_LABEL
from hostworker.privileged.tests.test_firewall import serving
from hostworker.runtime.container_config import NETWORK
from resources.amounts.units import GIB, MIB
from resources.gpus.discovery import Machine
from resources.hosts.services import declare_ready, register_host
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.launching.services import LaunchRequest
from sessions.lifecycle import Status
from sessions.models import Session
from sshserver.tests.ssh_client import SshClient, run
from tests import factories
from tests.containers import remove_containers
from tests.ports import free_port
from tests.shell_image import ensure_shell_image
from tests.wait import until
from tests.workers import host_worker, ssh_server, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def host() -> Iterator[Host]:
    """A registered host; what its worker leaves in the engine is removed at the end."""
    name = f"ssh-{uuid4().hex[:8]}"
    yield register_host(name, Machine(cpu=2, memory=4 * GIB, devices=()), factories.make_group().name)
    remove_containers(f"{HOST_LABEL}={name}")


def launch(host: Host) -> Session:
    """Return a session that is scheduled on the host."""
    image = factories.make_image(reference=ensure_shell_image())
    order = LaunchRequest(
        image=image, resource_group=host.group, name="train", cpu=1, memory=256 * MIB, shared_memory=16 * MIB
    )
    (session,) = services.submit(factories.make_user(), order)
    declare_ready(host)
    assert run_pass() == 1
    return session


def test_both_keys_enter_a_session_that_host_ports_refuse(host: Host, tmp_path: Path) -> None:
    client = SshClient(tmp_path, free_port())
    with host_worker(host.name), ssh_server(client.port, host.name):
        wait_until_ready(host.name)
        session = launch(host)
        until(lambda: Session.objects.exclude(ssh_public_key="").filter(pk=session.pk).exists())
        add_ssh_key(session.owner, client.new_key())
        assert client.scp("train@127.0.0.1:id_container", f"{tmp_path}/own").returncode == 0
        assert client.run(session.pk, "echo $GPUPLATFORM_SESSION_NAME", key="own").stdout == "train\n"
        gateway = run(["ip", "-4", "-o", "address", "show", NETWORK]).stdout.split()[3].partition("/")[0]
        with serving() as port:
            reach = f"exec 3<>/dev/tcp/{gateway}/{port} && echo hello >&3 && head -n 1 <&3"
            assert run(["bash", "-c", reach]).stdout == "heard hello\n", "from the host itself it is reached"
            assert client.run("train", f"({reach}) & sleep 3; kill %1", key="own").stdout == ""
        services.terminate(Session.objects.get(pk=session.pk), actor=session.owner)
        until(lambda: Session.objects.filter(pk=session.pk, status=Status.TERMINATED).exists())
        assert "Permission denied" in client.run("train", "true", key="own").stderr
