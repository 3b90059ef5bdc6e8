"""Data folders in real containers: what is kept, what is not, and who sees whose."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import docker
import pytest
from django.conf import settings

from accounts.models import User
from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from folders.files.descriptors import CONTAINER_UID
from folders.files.errors import FilesError
from folders.models import Folder, HostRoot, StorageRoot
from folders.sharing import folders
from folders.storage.paths import files_of, prepare_root
from resources.amounts.units import MIB
from resources.models import Image, Installation, ResourceGroup
from scheduler.cycle.passes import run_pass
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.launching.mounts import MountRequest
from sessions.lifecycle import Status
from tests import factories
from tests.containers import remove_containers
from tests.fgpu_sessions import PYTHON_IMAGE, InContainer, ensure_python_image, group_of, wait_for
from tests.two_hosts import QUIET
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

WHEEL = "hello-1.0-py3-none-any.whl"
METADATA = {
    "hello.py": "print('hello from the wheel')\n",
    "hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n",
    "hello-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "hello-1.0.dist-info/RECORD": "hello.py,,\nhello-1.0.dist-info/METADATA,,\nhello-1.0.dist-info/WHEEL,,\n",
}


def wheel() -> bytes:
    """Return a tiny package, as pip takes it without a network."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in METADATA.items():
            archive.writestr(name, text)
    return content.getvalue()


def put(folder: Folder, name: str, content: bytes) -> None:
    """Write a file as an upload does."""
    with files_of(folder) as files:
        descriptor = files.staging.open("draft", create=True)
        with open(descriptor, "wb") as file:
            file.write(content)
        files.staging.publish("draft", name)


@pytest.fixture
def root(tmp_path: Path, transactional_db: None) -> StorageRoot:
    """A storage root on this machine."""
    made = factories.make_root(name="disk", path=str(tmp_path / "root"))
    prepare_root(made)
    return made


@pytest.fixture
def group(root: StorageRoot) -> Iterator[ResourceGroup]:
    """The group of a host worker that has the storage root."""
    name = settings.COMPUTE_HOST_NAME
    ensure_python_image()
    try:
        with host_worker(name, COMPUTE_HOST_GROUP=f"near-{uuid4().hex[:8]}", **QUIET):
            wait_until_ready(name)
            until(lambda: HostRoot.objects.filter(root=root, is_present=True).exists())
            yield group_of(name, 1)
    finally:
        remove_containers(f"{INSTALLATION_LABEL}={Installation.current_key()}", f"{HOST_LABEL}={name}")


@pytest.fixture
def owner() -> User:
    return factories.make_user(policy=factories.make_policy(allow_sudo=True))


def submitted(owner: User, group: ResourceGroup, *asked: MountRequest) -> InContainer:
    order = services.LaunchRequest(
        image=Image.objects.filter(reference=PYTHON_IMAGE).first() or factories.make_image(reference=PYTHON_IMAGE),
        resource_group=group,
        cpu=1,
        memory=256 * MIB,
        shared_memory=16 * MIB,
        mounts=asked,
    )
    (session,) = services.submit(owner, order)
    run_pass()
    return InContainer(session)


def done(session: InContainer, command: str) -> str:
    """Return what a command that must succeed prints."""
    code, output = session.run(command)
    assert code == 0, output
    return output.strip()


def refused(session: InContainer, command: str) -> str:
    """Return what a command that must fail prints."""
    code, output = session.run(command)
    assert code != 0, output
    return output


def folder_mounts(session: InContainer) -> set[str]:
    """Return where the container has mounts of folders."""
    lines = done(session, "grep /root/ /proc/self/mountinfo").splitlines()
    return {line.split()[4] for line in lines}


def test_folders_keep_what_they_are_shared_and_nothing_else(
    root: StorageRoot, group: ResourceGroup, owner: User
) -> None:
    data, reference, _ = (folders.create(owner, name, root) for name in ("data", "reference", ".local"))
    guest = factories.make_user()
    secret = folders.create(guest, "secret", root)
    put(secret, "key.txt", b"secret")
    put(reference, WHEEL, wheel())

    first = submitted(
        owner, group, MountRequest(folder=data), MountRequest(folder=reference, path="/mnt/ref", is_read_only=True)
    )
    wait_for(first.session, Status.RUNNING)
    assert folder_mounts(first) == {"/home/work/data", "/mnt/ref", "/home/work/.local"}
    done(first, "echo kept > ~/data/kept.txt; echo lost > ~/lost.txt")
    done(first, f"pip install --user --no-index --no-deps /mnt/ref/{WHEEL}")
    check_read_only(first)
    check_nothing_leads_out(first, data)
    services.terminate(first.session, actor=owner)
    wait_for(first.session, Status.TERMINATED)  # a small machine has no core to spare

    folders.share(data, guest, is_read_only=True)
    with pytest.raises(RejectedError):
        submitted(guest, group, MountRequest(folder=reference))
    second, theirs = (
        submitted(owner, group, MountRequest(folder=data)),
        submitted(guest, group, MountRequest(folder=data)),
    )
    for session in (second, theirs):
        wait_for(session.session, Status.RUNNING)
    assert done(second, "cat ~/data/kept.txt") == "kept"
    assert done(second, "python -c 'import hello'") == "hello from the wheel"
    refused(second, "cat ~/lost.txt")
    assert folder_mounts(theirs) == {"/home/work/data"}
    assert done(theirs, "cat ~/data/kept.txt") == "kept"
    assert "Read-only file system" in refused(theirs, "echo x > ~/data/theirs.txt")
    done(second, "echo more > ~/data/more.txt")
    assert done(theirs, "cat ~/data/more.txt") == "more"
    refused(theirs, "python -c 'import hello'")
    check_withdrawal(theirs, second, data)


def check_withdrawal(theirs: InContainer, owners: InContainer, data: Folder) -> None:
    """A folder that is withdrawn goes out of the running session, and stays in that of its owner."""
    client = docker.from_env()
    container = client.containers.get(f"gp-{theirs.session.pk}-{theirs.session.attempt}")
    container.exec_run("sleep 1000", user="work", workdir="/home/work/data", detach=True)
    client.close()
    folders.withdraw(data.shares.get())
    until(lambda: theirs.session.mounts.filter(problem="Its owner has withdrawn it.").exists())
    assert done(theirs, "ls -A ~/data") == ""
    assert "sleep 1000" not in done(theirs, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert done(owners, "cat ~/data/kept.txt") == "kept"


def check_read_only(session: InContainer) -> None:
    """A folder that is mounted read-only stays so, for root of the container too."""
    assert "Read-only file system" in refused(session, "echo x > /mnt/ref/x")
    assert "Read-only file system" in refused(session, "sudo rm /mnt/ref/*")
    refused(session, "sudo mount -o remount,rw /mnt/ref")
    refused(session, "sudo umount /mnt/ref")


def check_nothing_leads_out(session: InContainer, data: Folder) -> None:
    """What a session plants in its folder leads nowhere outside, neither for it nor for the platform."""
    done(session, "cd ~/data; ln -s /etc/hostname link; ln -s ../../.. up; mkfifo pipe; ln -s . here")
    assert "cross-device" in refused(session, "ln /etc/hostname ~/data/hard").lower()
    refused(session, "sudo mknod ~/data/disk b 8 0")
    with files_of(data) as files:
        for path in ("link", "up/disk", "here/kept.txt", "pipe"):
            with pytest.raises(FilesError):
                files.read_text(path)
        assert files.read_text("kept.txt").text == "kept\n"
    written = Path(data.root.path, str(data.owner_id), data.pk, "files", "kept.txt").stat()
    assert (written.st_uid, written.st_gid) == (CONTAINER_UID, CONTAINER_UID)
