"""Imports are begun, cancelled and launched with, within what their owner may do."""

from datetime import timedelta
from typing import Any, Final

import pytest

from accounts.models import AuditEntry, User
from folders.models import Folder
from folders.sharing import folders
from imports import credentials, services
from imports.models import Import, ImportState, ImportTarget
from imports.requests import ImportRequest
from imports.tests.making import ADDRESS, done, make_world
from operations import retention
from resources import clock
from resources.amounts.units import GIB, MIB
from resources.models import Image, ResourceGroup
from sessions.errors import RejectedError
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import LaunchRequest
from sessions.lifecycle import Kind, Status
from sessions.models import Session
from tests.factories import make_app, make_folder, make_image, make_user, run_session

pytestmark = pytest.mark.django_db

BASES: Final[list[tuple[dict[str, Any], tuple[str, str]]]] = [
    ({"base": "pytorch/pytorch:2.3.1-cuda12"}, ("PyTorch", "Its Dockerfile builds on pytorch/pytorch:2.3.1-cuda12.")),
    (
        {"base": "ubuntu:24.04"},
        (
            "Python",
            "It builds on ubuntu:24.04, which is like no environment here: what that installs is not there.",
        ),
    ),
    ({"base": "ubuntu", "frameworks": {"torch": ""}}, ("PyTorch", "It names torch.")),
    (
        {"base": "x", "devcontainer": {"image": "jupyter/pytorch-notebook"}},
        ("PyTorch", "Its devcontainer.json builds on jupyter/pytorch-notebook."),
    ),
]


@pytest.fixture
def owner() -> User:
    return make_world()[0]


def refused(owner: User, **asked: Any) -> dict[str, str]:
    with pytest.raises(RejectedError) as caught:
        services.begin(owner, ImportRequest(**{"address": ADDRESS, **asked}))
    assert not Import.objects.exists()
    assert not Session.objects.filter(kind=Kind.BATCH.value).exists()
    return caught.value.errors


def test_a_look_is_a_small_batch_session(owner: User) -> None:
    look = services.look(owner, ImportRequest(address=f"{ADDRESS}/tree/dev/a"))
    session = Session.objects.get()
    assert (look.session, look.target, look.ref, look.path) == (session, ImportTarget.LOOK, "dev", "a")
    assert (session.owner, session.kind, session.memory, session.fgpu) == (owner, Kind.BATCH.value, GIB, 0)
    assert session.environment == {}
    assert not session.mounts.exists()
    assert ADDRESS not in session.command
    assert services.look(owner, ImportRequest(address=f"{ADDRESS}/tree/dev/a")) == look
    assert services.look(owner, ImportRequest(address=ADDRESS)) != look


def test_an_import_mounts_its_folder(owner: User) -> None:
    made = services.begin(owner, ImportRequest(address=ADDRESS, folder_name="course"))
    mount = Session.objects.get().mounts.get()
    assert (mount.folder, mount.path) == (Folder.objects.get(name="course"), "/home/work/course")
    assert (made.tree, made.directory, made.state) == ("/home/work/course/r", "r", ImportState.WAITING)
    with pytest.raises(RejectedError, match="Another import goes there"):
        services.begin(owner, ImportRequest(address=ADDRESS, folder=made.folder))


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"address": "file:///etc"}, "address"),
        ({"ref": "-x"}, "ref"),
        ({"path": "../x"}, "path"),
        ({"directory": "../x", "folder_name": "a"}, "directory"),
        ({"directory": ".ssh", "folder_name": "a"}, "directory"),
        ({}, "folder"),
        ({"folder_name": "../x"}, "folder_name"),
    ],
)
def test_bad_input_is_refused_at_its_field(owner: User, asked: dict[str, Any], field: str) -> None:
    assert list(refused(owner, **asked)) == [field]
    assert not Folder.objects.exists()


def test_what_is_not_ones_own_is_refused(owner: User) -> None:
    other = make_user()
    theirs = make_folder(other)
    assert "folder" in refused(owner, folder=theirs)
    folders.share(theirs, owner, is_read_only=True)
    assert "folder" in refused(owner, folder=theirs)
    key = credentials.add_token(other, name="a", host="github.com", token="t")
    assert "credential" in refused(owner, credential=key, folder_name="a")
    assert "session" in refused(owner, session=run_session())


def test_a_credential_is_for_its_host_and_kind(owner: User) -> None:
    key = credentials.add_key(owner, name="a", host="github.com")
    token = credentials.add_token(owner, name="b", host="gitlab.com", token="t")
    assert "token" in refused(owner, credential=key, folder_name="a")["credential"]
    assert "not sent to github.com" in refused(owner, credential=token, folder_name="a")["credential"]
    ssh = ImportRequest(address="git@github.com:o/r", folder_name="a", credential=key)
    assert services.begin(owner, ssh).credential == key


def test_a_user_has_ten_imports_under_way(owner: User) -> None:
    for number in range(services.MAX_LIVE):
        services.look(owner, ImportRequest(address=f"{ADDRESS}{number}"))
    with pytest.raises(RejectedError, match="under way"):
        services.look(owner, ImportRequest(address=ADDRESS))


def test_without_an_image_or_group_nothing_is_fetched(owner: User) -> None:
    Image.objects.update(is_enabled=False)
    with pytest.raises(RejectedError, match="No image"):
        services.look(owner, ImportRequest(address=ADDRESS))
    Image.objects.update(is_enabled=True)
    ResourceGroup.objects.update(allow_batch=False)
    with pytest.raises(RejectedError, match="no resource group"):
        services.look(owner, ImportRequest(address=ADDRESS))


def test_cancelling_ends_the_session_once(owner: User) -> None:
    look, admin = services.look(owner, ImportRequest(address=ADDRESS)), make_user(is_superuser=True)
    services.cancel(look, actor=admin)
    assert (look.state, Session.objects.get().status) == (ImportState.CANCELLED, Status.CANCELLED)
    assert AuditEntry.objects.filter(action="cancel import", actor=admin).exists()
    ended = look.ended_at
    services.cancel(look, actor=owner)
    assert look.ended_at == ended


def launch(owner: User, import_: Import, *mounts: MountRequest, **asked: Any) -> list[Session]:
    request = LaunchRequest(
        image=Image.objects.get(environment="Python"),
        resource_group=Session.objects.get(pk=import_.session_id).resource_group,
        cpu=1,
        memory=GIB,
        shared_memory=64 * MIB,
        mounts=mounts,
        **asked,
    )
    return services.launch(owner, import_, request)


def test_a_launch_has_the_tree_and_installs(owner: User) -> None:
    made = services.begin(owner, ImportRequest(address=ADDRESS, folder_name="course"))
    with pytest.raises(RejectedError, match="that is done"):
        launch(owner, made)
    done(made, notebooks=["a.ipynb"])
    with pytest.raises(RejectedError, match="Mount the folder"):
        launch(owner, made)
    assert made.folder
    first, second = launch(owner, made, MountRequest(folder=made.folder, path="data"), count=2)
    for session in (first, second):
        row = session.imports.get()
        assert (row.origin, row.target, row.installs) == (made, ImportTarget.SESSION, True)
        assert row.tree == "/home/work/data/r"
    [session] = launch(owner, made, MountRequest(folder=made.folder, is_read_only=True), command="ls course")
    row = session.imports.get()
    assert (row.state, row.installs, row.found) == (ImportState.DONE, False, {"notebooks": ["a.ipynb"]})
    with pytest.raises(RejectedError, match="of your own"):
        launch(make_user(), made)


def test_what_was_looked_at_is_fetched_into_the_home(owner: User) -> None:
    look = done(services.look(owner, ImportRequest(address=ADDRESS)))
    row = launch(owner, look)[0].imports.get()
    assert (row.origin, row.tree, row.url) == (None, "/home/work/r", ADDRESS)


def test_packages_stay_in_a_folder_of_the_owner(owner: User) -> None:
    look = done(services.look(owner, ImportRequest(address=ADDRESS)))
    owner.policy.max_folders = 0
    owner.policy.save()
    launch(owner, look)
    assert not owner.folders.exists()
    owner.policy.max_folders = 1
    owner.policy.save()
    owner = User.objects.get(pk=owner.pk)
    for _each in range(2):
        [session] = launch(owner, look)
        assert [mount.path for mount in session.mounts.all()] == ["/home/work/.environments"]
    assert owner.folders.get().is_automounted


def test_no_command_begins_before_what_it_needs(owner: User) -> None:
    look = done(services.look(owner, ImportRequest(address=ADDRESS)))
    with pytest.raises(RejectedError, match="before the files"):
        launch(owner, look, command="python r/train.py")
    made = done(services.begin(owner, ImportRequest(address=ADDRESS, folder_name="course")))
    assert made.folder
    with pytest.raises(RejectedError, match="before the packages"):
        launch(owner, made, MountRequest(folder=made.folder), command="python course/r/train.py")


def test_a_refused_import_leaves_no_directory(
    owner: User, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    directories: list[Folder] = []
    monkeypatch.setattr(folders, "make_directory", directories.append)
    Image.objects.update(is_enabled=False)
    with django_capture_on_commit_callbacks(execute=True):
        refused(owner, folder_name="course")
    assert (directories, Folder.objects.count()) == ([], 0)
    Image.objects.update(is_enabled=True)
    with django_capture_on_commit_callbacks(execute=True):
        services.begin(owner, ImportRequest(address=ADDRESS, folder_name="course"))
    assert [each.name for each in directories] == ["course"]


def test_sessions_that_queue_take_no_place_of_imports(owner: User) -> None:
    look = done(services.look(owner, ImportRequest(address=ADDRESS)))
    for _each in range(services.MAX_LIVE):
        launch(owner, look)
    assert services.look(owner, ImportRequest(address=f"{ADDRESS}/tree/dev")).is_live


def test_a_proposal_follows_what_was_found(owner: User) -> None:
    made = services.begin(owner, ImportRequest(address=ADDRESS, folder_name="course"))
    needs = {"cpus": 4, "memory": 8 * GIB, "gpu": True}
    found = {"frameworks": {"torch": "2.7.1"}, "notebooks": ["a.ipynb"], "devcontainer": needs}
    options = services.launch_options(done(made, **found))
    assert str(options.image).startswith("Python")
    assert "needs PyTorch" in options.reasons["image"]
    for version, is_default in (("2.13", True), ("2.7", False)):
        image = make_image(environment="PyTorch", version=version, reference=f"t:{version}", is_default=is_default)
        make_app(image, name="jupyterlab")
        make_app(image, name="vscode")
    options = services.launch_options(made)
    assert options.image
    assert (options.image.version, options.app, options.file) == ("2.7", "jupyterlab", "a.ipynb")
    assert (options.cpu, options.memory, options.fgpu) == (4, 8 * GIB, 1000)
    assert [each.folder for each in options.mounts] == [made.folder]
    for found, reason in BASES:
        options = services.launch_options(done(made, **found))
        assert (options.image and options.image.environment, options.reasons["image"]) == reason
    options = services.launch_options(done(made, frameworks={"torch": ""}, notebooks=[]))
    assert options.image
    assert (options.image.version, options.app, options.fgpu) == ("2.13", "vscode", None)


def test_the_version_of_python_is_taken_from_the_base(owner: User) -> None:
    make_image(environment="Python", version="3.13", reference="p:3.13")
    look = services.look(owner, ImportRequest(address=ADDRESS))
    for found, version in (
        ({"base": "python:3.13.2-slim"}, "3.13"),
        ({"devcontainer": {"image": "mcr.microsoft.com/devcontainers/python:1-3.13-bookworm"}}, "3.13"),
        ({"frameworks": {"python": "3.13"}}, "3.13"),
        ({"base": "python"}, "3.11"),
    ):
        options = services.launch_options(done(look, **found))
        assert options.image
        assert options.image.version == version, found


def test_looks_and_imports_are_removed_in_time(owner: User) -> None:
    for target, days in (("LOOK", 2), ("LOOK", 0), ("FOLDER", 89), ("FOLDER", 91)):
        then = clock.now() - timedelta(days=days)
        Import.objects.create(owner=owner, target=target, state="DONE", ended_at=then, created_at=then)
    removed = retention.remove_old(clock.now())
    assert (removed["looks"], removed["imports"]) == (1, 1)
    assert Import.objects.count() == 2
