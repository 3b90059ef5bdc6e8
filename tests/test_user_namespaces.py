"""Sessions on an engine with `userns-remap`: root in them is nobody on the host, all else is as elsewhere."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings
from docker.api import APIClient

from engine.containers import container_name
from folders.files.descriptors import CONTAINER_UID
from folders.models import Folder, HostRoot
from folders.sharing import folders
from folders.storage.paths import prepare_root
from hostworker.privileged import mounts
from hostworker.runtime.docker.runtime import DockerRuntime
from resources.amounts.units import MIB
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.launching.mounts import MountRequest
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.parking import services as parking
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from tests import factories
from tests.far_machine import far_machine
from tests.fgpu_sessions import (
    OUT_OF_MEMORY,
    PYTHON_IMAGE,
    InContainer,
    ensure_hook_built,
    ensure_python_image,
    group_of,
    running,
    wait_for,
)
from tests.two_hosts import QUIET
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.django_db(transaction=True)]

FIRST = 200_000
KEEPS_THE_USER = f"{FIRST}:1000 1000:1 {FIRST + 1001}:64535"  # of sessions, as docs/isolation.md says
MAPS_ALL = f"{FIRST}:65536"


@dataclass(frozen=True)
class Remapped:
    """A host whose engine maps users, with a data folder."""

    host: Host
    engine_url: str
    folder: Folder

    def pid(self, session: Session) -> int:
        """Return the main process of the session's container."""
        client = APIClient(self.engine_url, version="auto")
        try:
            return int(client.inspect_container(container_name(session.pk, session.attempt))["State"]["Pid"])
        finally:
            client.close()


@pytest.fixture
def remapped(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remapped]:
    ensure_hook_built()
    ensure_python_image()
    root = factories.make_root(name="disk", path=str(tmp_path / "root"))
    prepare_root(root)
    name = f"remapped-{uuid4().hex[:8]}"
    with far_machine(KEEPS_THE_USER) as machine:
        machine.take_image(PYTHON_IMAGE)
        monkeypatch.setenv("DOCKER_HOST", machine.engine_url)  # for what tests do in containers
        of_host = QUIET | {"COMPUTE_DOCKER_URL": machine.engine_url, "COMPUTE_SIMULATED_GPUS": "1x8GiB"}
        with host_worker(name, on=machine.on_it, **of_host):
            wait_until_ready(name)
            assert HostRoot.objects.get(host__name=name, root=root).problem == ""
            owner = factories.make_user(policy=factories.make_policy(allow_sudo=True))
            yield Remapped(Host.objects.get(name=name), machine.engine_url, folders.create(owner, "data", root))
    shutil.rmtree(Path(settings.COMPUTE_FGPU_DIR) / name, ignore_errors=True)


def done(container: InContainer, command: str) -> str:
    """Return what a command that must succeed prints."""
    code, output = container.run(command)
    assert code == 0, output
    return output.strip()


def test_a_mapped_session_has_share_folder_and_parking(remapped: Remapped) -> None:
    data, group = remapped.folder, group_of(remapped.host.name, 2)
    owner = data.owner
    assert owner
    container = running(group, "0.5", owner=owner, mounts=[MountRequest(folder=data, path="/mnt/data")])
    session = Session.objects.get(pk=container.session.pk)
    files = Path(data.root.path, str(data.holder_number), data.pk, "files")

    assert done(container, "sudo cat /proc/self/uid_map").split()[:3] == ["0", str(FIRST), "1000"]
    assert container.run("sudo chown work /run/fgpu/limits.conf")[0] != 0
    assert container.run("sudo sh -c 'echo >/run/fgpu/limits.conf'")[0] != 0
    assert container.total_memory() == container.total_memory("sudo") == [2048]
    assert container.cuda("init", "enter 0", f"alloc plain {3 << 30} 0")[-1] == OUT_OF_MEMORY
    assert container.cuda("init", "enter 0", f"alloc plain {3 << 30} 0", prefix="sudo")[-1] == OUT_OF_MEMORY

    done(container, "touch /mnt/data/mine && sudo touch /mnt/data/of-root && echo kept >~/note")
    assert {path.name: path.stat().st_uid for path in files.iterdir()} == {"mine": CONTAINER_UID, "of-root": FIRST}
    pid = remapped.pid(session)
    assert mounts.set_read_only(pid, files, read_only=True)
    assert container.run("touch /mnt/data/mine")[0] != 0
    assert mounts.set_read_only(pid, files, read_only=False)
    done(container, "touch /mnt/data/mine")

    resizing.resize(session, SessionSize(cpu=1, memory=512 * MIB, fgpu=1000), actor=owner)
    assert until(lambda: Session.objects.filter(pk=session.pk, resize__isnull=True, fgpu=1000).exists())
    assert container.total_memory() == [4096]

    session.refresh_from_db()
    parking.park(session, actor=owner)
    wait_for(session, Status.PARKED)
    parking.resume(session, actor=owner)
    run_pass()
    wait_for(session, Status.RUNNING)
    assert done(InContainer(session), "cat ~/note; ls /mnt/data") == "kept\nmine\nof-root"


def test_folders_are_refused_where_their_user_is_mapped() -> None:
    with far_machine(MAPS_ALL) as machine:
        runtime = DockerRuntime(uuid4().hex, "here", machine.engine_url)
        assert f"maps user 1000 of sessions to {FIRST + 1000}" in runtime.folders_problem()
        client = APIClient(machine.engine_url, version="auto")
        assert client.containers(all=True) == []
        client.close()
