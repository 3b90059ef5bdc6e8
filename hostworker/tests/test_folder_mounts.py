"""What a host gives a session of its folders, and what happens where it lacks them."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from folders.errors import StorageUnavailableError
from folders.files.roots import MARKER
from folders.models import Folder, FolderShare, StorageRoot
from folders.storage.roots import mark
from hostworker.containers import folder_mounts
from hostworker.runtime.memory.runtime import MemoryFolders, MemoryRuntime
from hostworker.runtime_protocol import FolderMount, MountError
from hostworker.storage.share_watch import MAX_HELD, ShareWatch
from hostworker.tests.starting import start_session
from resources.models import Host
from sessions.launching import services
from sessions.launching.mounts import MountRequest
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.tests.launch_requests import make_launch_request
from tests.factories import (
    lease_session,
    make_folder,
    make_host,
    make_policy,
    make_project,
    make_root,
    make_user,
    owner_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def runtime(tmp_path: Path) -> MemoryRuntime:
    return MemoryRuntime("test", "here", engine_url=f"memory://{tmp_path.name}")


@pytest.fixture
def host() -> Host:
    return make_host()


@pytest.fixture
def root(host: Host, tmp_path: Path) -> StorageRoot:
    """A storage root that really is on this machine."""
    root = make_root(host, name="disk", path=str(tmp_path))
    mark(root)
    return root


def made(folder: Folder) -> Path:
    """Make the folder's directory, and return it."""
    files = Path(folder.root.path, str(folder.holder_number), folder.pk, "files")
    files.mkdir(parents=True)
    return files


def started(runtime: MemoryRuntime, host: Host, folder: Folder, *asked: MountRequest) -> Session:
    """Start a session of the folder's owner."""
    (session,) = services.submit(owner_of(folder), make_launch_request(host, mounts=asked))
    lease_session(session, host)
    start_session(runtime, session.pk, session.attempt)
    session.refresh_from_db()
    return session


def mounted(runtime: MemoryRuntime, session: Session) -> tuple[FolderMount, ...]:
    spec = runtime.spec(session.pk, session.attempt)
    return spec.folders if spec else ()


def test_the_container_gets_the_folders(runtime: MemoryRuntime, host: Host, root: StorageRoot) -> None:
    data = make_folder(root=root, name="data")
    local = make_folder(data.owner, root=root, name=".local")
    sources = [made(data), made(local)]
    session = started(runtime, host, data, MountRequest(folder=data, path="/mnt/data", is_read_only=True))
    assert session.status == Status.RUNNING
    assert mounted(runtime, session) == (
        FolderMount(source=sources[0], target="/mnt/data", is_read_only=True),
        FolderMount(source=sources[1], target="/home/work/.local"),
    )
    assert not session.mounts.exclude(problem="").exists()


def test_folders_of_another_user_come_from_a_mapped_mount(
    runtime: MemoryRuntime, host: Host, root: StorageRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path / MARKER, 1234, 1234)
    data = make_folder(root=root, name="data")
    source = made(data).relative_to(tmp_path)
    (tmp_path / "mapped" / source).mkdir(parents=True)
    monkeypatch.setattr(MemoryFolders, "map_root", lambda self, path, key: path / "mapped")
    session = started(runtime, host, data, MountRequest(folder=data))
    assert mounted(runtime, session) == (FolderMount(source=tmp_path / "mapped" / source, target="/home/work/data"),)


def test_a_root_that_cannot_be_mapped_is_said(
    runtime: MemoryRuntime, host: Host, root: StorageRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folders: MemoryFolders, path: Path, key: str) -> Path:
        raise MountError(f"{path} has no id-mapped mounts.")

    os.chown(tmp_path / MARKER, 1234, 1234)
    data = make_folder(root=root, name="data")
    made(data)
    monkeypatch.setattr(MemoryFolders, "map_root", refuse)
    session = started(runtime, host, data, MountRequest(folder=data))
    assert (session.status, session.reason) == (Status.ERROR, Reason.MOUNT_FAILED)
    assert f"cannot give sessions the storage {root}. {tmp_path} has no id-mapped mounts." in session.detail


def test_a_missing_folder_that_was_asked_for_ends_the_session(
    runtime: MemoryRuntime, host: Host, root: StorageRoot
) -> None:
    data = make_folder(root=root, name="data", measured_at="2026-01-01T00:00Z")
    session = started(runtime, host, data, MountRequest(folder=data))
    assert (session.status, session.reason) == (Status.ERROR, Reason.MOUNT_FAILED)
    assert "data: its directory is missing in the storage disk" in session.detail
    assert not runtime.containers()


def test_without_its_storage_a_dot_folder_is_left_out(runtime: MemoryRuntime, host: Host, root: StorageRoot) -> None:
    local = make_folder(root=root, name=".local")
    made(local)
    Path(root.path, ".gpuplatform-root").unlink()
    session = started(runtime, host, local)
    assert (session.status, mounted(runtime, session)) == (Status.RUNNING, ())
    assert session.mounts.get().problem.startswith("Its host does not have the storage disk.")


def test_without_its_storage_a_session_ends_that_asked_for_it(
    runtime: MemoryRuntime, host: Host, root: StorageRoot
) -> None:
    data = make_folder(root=root, name="data")
    made(data)
    Path(root.path, ".gpuplatform-root").write_text("another")
    session = started(runtime, host, data, MountRequest(folder=data))
    assert session.reason == Reason.MOUNT_FAILED
    assert "does not have the storage disk" in session.detail


class TestShareWatch:
    """What becomes of the folders of others while sessions run."""

    @pytest.fixture
    def theirs(self, root: StorageRoot) -> Folder:
        folder = make_folder(root=root, name="theirs")
        made(folder)
        return folder

    @pytest.fixture
    def share(self, theirs: Folder) -> FolderShare:
        return FolderShare.objects.create(folder=theirs, user=make_user(), is_read_only=False)

    @pytest.fixture
    def session(self, runtime: MemoryRuntime, host: Host, share: FolderShare) -> Session:
        own = make_folder(share.user, root=share.folder.root, name="own")
        made(own)
        return started(runtime, host, own, MountRequest(folder=own), MountRequest(folder=share.folder))

    def test_a_withdrawn_folder_is_taken_out_of_the_session(
        self, runtime: MemoryRuntime, host: Host, session: Session, share: FolderShare
    ) -> None:
        watch = ShareWatch(runtime, host)
        watch.poll()
        assert len(mounted(runtime, session)) == 2
        share.delete()
        for _ in range(2):
            watch.poll()
        assert [mount.target for mount in mounted(runtime, session)] == ["/home/work/own"]
        assert session.mounts.get(folder_name="theirs").problem == "Its owner has withdrawn it."
        session.refresh_from_db()
        assert session.status == Status.RUNNING

    def test_a_projects_folder_leaves_with_the_membership(
        self, runtime: MemoryRuntime, host: Host, root: StorageRoot
    ) -> None:
        member = make_user()
        project = make_project(member, policy=make_policy())
        own, ours = make_folder(member, root=root, name="own"), make_folder(root=root, name="ours", project=project)
        made(own)
        made(ours)
        session = started(runtime, host, own, MountRequest(folder=own), MountRequest(folder=ours))
        watch = ShareWatch(runtime, host)
        watch.poll()
        assert len(mounted(runtime, session)) == 2
        project.memberships.all().delete()
        watch.poll()
        assert [mount.target for mount in mounted(runtime, session)] == ["/home/work/own"]
        assert "no longer a member" in session.mounts.get(folder_name="ours").problem

    def test_a_folder_turns_read_only(
        self, runtime: MemoryRuntime, host: Host, session: Session, share: FolderShare
    ) -> None:
        FolderShare.objects.update(is_read_only=True)
        ShareWatch(runtime, host).poll()
        assert [mount.is_read_only for mount in mounted(runtime, session)] == [False, True]
        assert session.mounts.get(folder_name="theirs").is_read_only

    def test_a_session_ends_whose_programs_go_on_writing(
        self, runtime: MemoryRuntime, host: Host, session: Session, share: FolderShare, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        FolderShare.objects.update(is_read_only=True)
        monkeypatch.setattr(MemoryFolders, "set_read_only", lambda *_, **__: False)
        watch = ShareWatch(runtime, host)
        for _ in range(MAX_HELD - 1):
            watch.poll()
        session.refresh_from_db()
        assert session.status == Status.RUNNING
        watch.poll()
        session.refresh_from_db()
        assert (session.status, session.reason) == (Status.TERMINATING, Reason.MOUNT_FAILED)

    def test_a_session_ends_whose_folder_cannot_be_taken(
        self, runtime: MemoryRuntime, host: Host, session: Session, share: FolderShare
    ) -> None:
        share.delete()
        runtime.fail_next("take_folder_away", MountError("no root here"), times=3)
        watch = ShareWatch(runtime, host)
        for _ in range(2):
            watch.poll()
        session.refresh_from_db()
        assert session.status == Status.RUNNING
        watch.poll()
        session.refresh_from_db()
        assert (session.status, session.reason) == (Status.TERMINATING, Reason.MOUNT_FAILED)

    def test_without_folders_of_others_one_query_is_made(
        self, runtime: MemoryRuntime, host: Host, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(1):
            ShareWatch(runtime, host).poll()


def test_a_link_in_place_of_a_folder_is_not_followed(runtime: MemoryRuntime, host: Host, root: StorageRoot) -> None:
    data, victim = make_folder(root=root, name="data"), make_folder(root=root, owner=make_user(), name="victim")
    made(data).rmdir()
    Path(root.path, str(data.holder_number), data.pk, "files").symlink_to(made(victim))
    session = started(runtime, host, data, MountRequest(folder=data))
    assert session.reason == Reason.MOUNT_FAILED


def test_a_folder_made_elsewhere_gets_its_directory(runtime: MemoryRuntime, host: Host, root: StorageRoot) -> None:
    data = make_folder(root=root, name="data")
    session = started(runtime, host, data, MountRequest(folder=data))
    assert (session.status, len(mounted(runtime, session))) == (Status.RUNNING, 1)


def test_every_folder_that_is_missing_is_named(
    runtime: MemoryRuntime, host: Host, root: StorageRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, local = make_folder(root=root, name="data"), make_folder(root=root, name=".local")
    monkeypatch.setattr(MemoryRuntime, "folders_problem", lambda self: "the engine maps user ids " + "x" * 300)
    session = started(runtime, host, local)
    assert (session.status, mounted(runtime, session)) == (Status.RUNNING, ())
    assert session.mounts.get().problem == ("The engine maps user ids " + "x" * 300)[:300]
    other = started(runtime, host, data, MountRequest(folder=data))
    assert (other.reason, other.mounts.get().problem) == (Reason.MOUNT_FAILED, "")
    assert other.detail.startswith("Not started, as folders that it mounts are missing. data: the engine maps")
    monkeypatch.undo()
    Session.objects.filter(pk=session.pk).update(status=Status.PREPARING)
    session.refresh_from_db()
    assert len(folder_mounts.prepare(session, runtime)) == 1
    assert session.mounts.get().problem == ""


def test_a_directory_that_cannot_be_opened_is_said(
    runtime: MemoryRuntime, host: Host, root: StorageRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    data = make_folder(root=root, name="data")
    monkeypatch.setattr(folder_mounts, "mount_source", fail)
    session = started(runtime, host, data, MountRequest(folder=data))
    assert "data: its directory cannot be opened: Input/output error." in session.detail


def test_a_root_that_goes_meanwhile_is_said(
    runtime: MemoryRuntime, host: Host, root: StorageRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Folder) -> None:
        raise StorageUnavailableError("The storage disk is away.")

    data = make_folder(root=root, name="data")
    monkeypatch.setattr(folder_mounts, "ensure_directory", fail)
    session = started(runtime, host, data, MountRequest(folder=data))
    assert "data: The storage disk is away." in session.detail
