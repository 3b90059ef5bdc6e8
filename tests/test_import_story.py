"""An import from its address to a running session, in real containers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from pytest_django import Settings

from accounts.models import User
from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from folders.models import Folder, HostRoot, StorageRoot
from folders.sharing import folders
from folders.storage.paths import prepare_root
from imports import credentials, services
from imports.models import Import, ImportState
from imports.requests import ImportRequest
from imports.runs import delivery, progress
from resources.amounts.units import MIB
from resources.models import Image, Installation, ResourceGroup
from scheduler.cycle.passes import run_pass
from sessions.launching import services as sessions
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import LaunchRequest
from sessions.lifecycle import Status
from sessions.models import Session
from tests import factories
from tests.containers import remove_containers
from tests.fgpu_sessions import PYTHON_IMAGE, InContainer, ensure_python_image, group_of, wait_for
from tests.git_container import REPOSITORY, SCRIPT
from tests.test_folders_in_sessions import done
from tests.two_hosts import QUIET
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

ADDRESS: Final = f"http://127.0.0.1:8123{REPOSITORY}"  # in the container itself


@pytest.fixture
def root(tmp_path: Path, transactional_db: None) -> StorageRoot:
    """A storage root on this machine."""
    made = factories.make_root(name="disk", path=str(tmp_path / "root"), is_default=True)
    prepare_root(made)
    return made


@pytest.fixture
def group(root: StorageRoot, settings: Settings) -> Iterator[ResourceGroup]:
    """The group of a host worker that has the storage root."""
    settings.COMPUTE_IMPORT_NETWORKS = ["127.0.0.0/8"]
    ensure_python_image()
    factories.make_image(reference=PYTHON_IMAGE, environment="Python", version="3.11")
    name = settings.COMPUTE_HOST_NAME
    try:
        with host_worker(name, COMPUTE_HOST_GROUP=f"near-{uuid4().hex[:8]}", **QUIET):
            wait_until_ready(name)
            until(lambda: HostRoot.objects.filter(root=root, is_present=True).exists())
            yield group_of(name, 1)
    finally:
        remove_containers(f"{INSTALLATION_LABEL}={Installation.current_key()}", f"{HOST_LABEL}={name}")


def running(session: Session | None) -> InContainer:
    """Return the container of a session that was submitted, with the host of repositories in it."""
    assert session is not None
    run_pass()
    wait_for(session, Status.RUNNING)
    container = InContainer(Session.objects.get(pk=session.pk))
    done(container, SCRIPT)
    return container


def ended(import_: Import) -> Import:
    """Carry the import on until it ends, as the scheduler's process does."""

    def is_ended() -> bool:
        progress.advance_all()
        import_.refresh_from_db()
        return not import_.is_live

    until(is_ended)
    return import_


def launched(owner: User, group: ResourceGroup, import_: Import, *mounts: MountRequest) -> Session:
    """Return a session that was launched with the import."""
    request = LaunchRequest(
        image=Image.objects.get(reference=PYTHON_IMAGE),
        resource_group=group,
        cpu=1,
        memory=512 * MIB,
        shared_memory=16 * MIB,
        mounts=mounts,
    )
    [session] = services.launch(owner, import_, request)
    return session


def test_from_an_address_to_a_session_with_packages(group: ResourceGroup) -> None:
    owner = factories.make_user()
    look = services.look(owner, ImportRequest(address=ADDRESS))
    running(look.session)
    assert ended(look).state == ImportState.DONE, look.problem
    assert look.found["present"] == ["requirements.txt"]
    assert services.look(owner, ImportRequest(address=ADDRESS)) == look

    key = credentials.add_token(owner, name="host", host="127.0.0.1", token="s3cret-token")
    made = services.begin(owner, ImportRequest(address=ADDRESS, folder_name="course", credential=key))
    container = running(made.session)
    assert ended(made).state == ImportState.DONE, made.problem
    wait_for(container.session, Status.TERMINATED)
    session = Session.objects.get(pk=container.session.pk)
    assert "s3cret" not in f"{session.environment} {session.command} {session.log_tail}"
    options = services.launch_options(made)
    assert (options.app, options.file, options.tree) == ("", "first.ipynb", "/home/work/course/work")

    for name in ("first", "second"):
        session = launched(owner, group, made, *options.mounts)
        container = running(session)
        installing = session.imports.get()
        assert ended(installing).state == ImportState.DONE, installing.problem
        assert done(container, "cd ~/course/work && .venv/bin/python -c 'import hello'") == "hello from the wheel"
        assert done(container, "cat ~/course/work/.venv/started 2>/dev/null || true") == (
            "" if name == "first" else "yes"
        )
        done(container, "echo yes > ~/course/work/.venv/started")
        assert "/.environments/" in done(container, "cat ~/.local/share/jupyter/kernels/import-work/kernel.json")
        sessions.terminate(session, actor=owner)
        wait_for(session, Status.TERMINATED)


def test_a_deploy_key_opens_a_repository_by_ssh(group: ResourceGroup) -> None:
    owner = factories.make_user()
    key = credentials.add_key(owner, name="deploy", host="127.0.0.1")
    address = "ssh://work@127.0.0.1:2222/tmp/host/work.git"
    problems = []
    for public in ("", key.public_key):
        look = services.look(owner, ImportRequest(address=address, credential=key))
        container = running(look.session)
        done(
            container,
            f"echo '{public}' >/tmp/keys; mkdir -p ~/.ssh; printf 'Host *\\nProxyCommand false\\n' >~/.ssh/config",
        )
        problems.append(ended(look).problem)
    assert "Permission denied" in problems[0]
    assert problems[1] == ""
    assert (look.found["branch"], look.found["notebooks"]) == ("main", ["first.ipynb"])
    key.refresh_from_db()
    assert key.known_hosts.startswith("127.0.0.1 ssh-ed25519 ")
    assert key.last_used_at is not None
    secret = credentials.for_program(key)["private_key"].splitlines()[2]
    session = Session.objects.get(pk=container.session.pk)
    assert secret not in f"{session.environment} {session.command} {session.log_tail} {look.found}"


def test_into_a_running_session_and_cancelled(group: ResourceGroup) -> None:
    owner = factories.make_user()
    look = services.look(owner, ImportRequest(address=ADDRESS))
    running(look.session)
    session = launched(owner, group, ended(look))
    container = running(session)
    into = ended(session.imports.get())
    assert into.state == ImportState.DONE, into.problem
    assert done(container, "ls ~/work") == "first.ipynb\nrequirements.txt\nwheels"
    session.refresh_from_db()
    again = ended(services.begin(owner, ImportRequest(address=ADDRESS, session=session)))
    assert "already" in again.problem
    assert done(container, "ls -A ~ | grep -c '^[.]work' || true") == "0"

    slow = services.begin(owner, ImportRequest(address=ADDRESS.replace("git/work", "slow/repo"), session=session))
    program = f"pgrep -f '[p]ython3 {delivery.PLACE}{slow.pk}'"
    until(lambda: progress.advance_all() and Import.objects.get(pk=slow.pk).progress == "Looks for the repository")
    assert Import.objects.get(pk=slow.pk).state == ImportState.FETCHING
    assert container.run(program)[0] == 0
    services.cancel(slow, actor=owner)

    def is_stopped() -> bool:
        progress.advance_all()
        return container.run(program)[0] == 1

    until(is_stopped)
    assert "It was cancelled." in done(container, f"cat {delivery.PLACE}{slow.pk}/output")
    assert done(container, "ls -A ~ | grep -c repo || true") == "0"

    other = folders.create(owner, "other")
    made = services.begin(owner, ImportRequest(address=ADDRESS, folder=other))
    services.cancel(made, actor=owner)
    assert (made.state, Folder.objects.get(pk=other.pk).imports.count()) == (ImportState.CANCELLED, 1)
    assert Session.objects.get(pk=made.session_id).status == Status.CANCELLED
