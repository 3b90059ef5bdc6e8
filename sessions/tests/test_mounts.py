"""The folders of sessions: what may be mounted, what is refused and how, and what has become of them at the start."""

from typing import Any

import pytest
from django.utils import timezone

from accounts.models import User
from folders.errors import FolderInUseError
from folders.models import Folder, FolderShare, HostRoot, StorageRoot
from folders.sharing import folders as folder_services
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.launching import mounts, services
from sessions.launching.mounts import MountRequest
from sessions.launching.validation import MAX_MOUNTS
from sessions.lifecycle import Reason, Status
from sessions.models import Mount, Session
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import make_folder, make_host, make_image, make_root, make_session, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host() -> Host:
    return make_host()


@pytest.fixture
def root(host: Host) -> StorageRoot:
    return make_root(host, name="nfs")


@pytest.fixture
def data(owner: User, root: StorageRoot) -> Folder:
    return make_folder(owner, root=root, name="data")


def shared(with_user: User, root: StorageRoot, name: str = "theirs", *, is_read_only: bool = True) -> Folder:
    folder = make_folder(root=root, name=name)
    FolderShare.objects.create(folder=folder, user=with_user, is_read_only=is_read_only)
    return folder


def rows(session: Session) -> dict[str, tuple[str, bool, bool]]:
    """Return {path: (folder's name, whether it is read-only, and automatic)}."""
    return {row.path: (row.folder_name, row.is_read_only, row.is_automatic) for row in session.mounts.all()}


def submitted(owner: User, host: Host, *requests: MountRequest, **overrides: Any) -> list[Session]:
    return services.submit(owner, make_launch_request(host, mounts=requests, **overrides))


def test_folders_are_mounted_as_asked(owner: User, host: Host, data: Folder, root: StorageRoot) -> None:
    readable, writable = shared(owner, root), shared(owner, root, "writable", is_read_only=False)
    sessions = submitted(
        owner,
        host,
        MountRequest(folder=data, is_read_only=True),
        MountRequest(folder=readable, path="/mnt/theirs"),
        MountRequest(folder=writable, path="sets/one"),
        count=2,
    )
    for session in sessions:
        assert rows(session) == {
            "/home/work/data": ("data", True, False),
            "/mnt/theirs": ("theirs", True, False),
            "/home/work/sets/one": ("writable", False, False),
        }
        assert (session.required_roots, session.wanted_roots) == ([root.pk], [])


def test_dot_folders_are_mounted_unless_asked_for(owner: User, host: Host, root: StorageRoot) -> None:
    local, cache = (make_folder(owner, root=root, name=name) for name in (".local", ".cache"))
    make_folder(owner, root=root, name=".old", trashed_at=timezone.now())
    make_folder(root=root, name=".local")
    shared(owner, root, ".theirs")
    (session,) = submitted(owner, host, MountRequest(folder=cache, path="/mnt/cache", is_read_only=True))
    assert rows(session) == {"/home/work/.local": (".local", False, True), "/mnt/cache": (".cache", True, False)}
    assert (session.required_roots, session.wanted_roots) == ([root.pk], [root.pk])
    assert session.mounts.get(is_automatic=True).folder == local


def test_all_that_is_wrong_is_said_at_once(owner: User, host: Host, data: Folder, root: StorageRoot) -> None:
    make_folder(owner, root=root, name=".local")
    other, third = (make_folder(owner, root=root, name=name) for name in ("other", "third"))
    error = rejection(
        owner,
        make_launch_request(
            host,
            mounts=[
                MountRequest(folder=data, path="/etc/data"),
                MountRequest(folder=data),
                MountRequest(folder=shared(owner, root), is_read_only=False),
                MountRequest(folder=make_folder(root=root, name="strange")),
                MountRequest(folder=make_folder(owner, root=root, name="gone", trashed_at=timezone.now())),
                MountRequest(folder=other, path=".local/lib"),
                MountRequest(folder=third, path="theirs/below"),
            ],
        ),
    )["mounts"]
    for text in (
        "data: /etc/data is a path of the system",
        "data: a session mounts a folder once",
        "theirs: it is shared with you read-only",
        "strange: it is neither yours nor of a project of yours nor shared with you",
        "gone: it is in the trash",
        "other: /home/work/.local/lib is taken by your folder .local",
        "third: /home/work/theirs/below and /home/work/theirs, where another folder is mounted, lie in one another",
    ):
        assert text in error
    assert not Session.objects.exists()
    assert not Mount.objects.exists()


def test_a_folder_cannot_be_deleted_while_it_is_mounted(owner: User, host: Host, data: Folder) -> None:
    planned = mounts.plan(owner, [MountRequest(folder=data)])
    submitted(owner, host, MountRequest(folder=data))
    with pytest.raises(FolderInUseError):
        folder_services.trash(data)
    Session.objects.get().delete()
    folder_services.trash(data)
    assert not mounts.lock_folders(planned)


def test_the_number_of_folders_is_limited(owner: User, host: Host, root: StorageRoot) -> None:
    asked = [MountRequest(folder=make_folder(owner, root=root)) for _ in range(MAX_MOUNTS + 1)]
    assert "at most 20" in rejection(owner, make_launch_request(host, mounts=asked))["mounts"]
    assert not rejection(owner, make_launch_request(host, mounts=asked[:-1]))


def test_a_group_without_the_storage_is_refused(owner: User, host: Host, data: Folder) -> None:
    HostRoot.objects.update(is_present=False)
    error = rejection(owner, make_launch_request(host, mounts=[MountRequest(folder=data)]))
    assert error == {
        "mounts": f"No host of the resource group {host.group} has the storage nfs of data now: choose another group."
    }


def test_two_storages_must_be_on_one_host(owner: User, host: Host, data: Folder) -> None:
    other_host = make_host(group=host.group)
    other = make_folder(owner, root=make_root(other_host, name="local"), name="other")
    asked = [MountRequest(folder=data), MountRequest(folder=other)]
    assert (
        "has the storage local and nfs of data and other now"
        in rejection(owner, make_launch_request(host, mounts=asked))["mounts"]
    )
    HostRoot.objects.create(host=other_host, root=data.root, is_present=True)
    (session,) = submitted(owner, host, *asked)
    run_pass()
    session.refresh_from_db()
    assert session.host == other_host


def test_a_waiting_session_says_which_storage_is_missing(owner: User, host: Host, data: Folder) -> None:
    (session,) = submitted(owner, host, MountRequest(folder=data))
    HostRoot.objects.update(is_present=False)
    run_pass()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.PENDING, Reason.NO_STORAGE)
    assert session.detail.endswith("has the storage of its folders now: nfs.")
    HostRoot.objects.update(is_present=True)
    run_pass()
    session.refresh_from_db()
    assert session.host == host


def test_a_dot_folder_prefers_hosts_that_have_it(owner: User, host: Host, root: StorageRoot) -> None:
    make_host(group=host.group, cpu=64)
    make_folder(owner, root=root, name=".local")
    first, second = submitted(owner, host, count=2, cpu=10)
    run_pass()
    for session in (first, second):
        session.refresh_from_db()
    assert (first.host, second.status) == (host, Status.PENDING)  # the other host has room, but not the folder
    assert second.detail == (
        "Waiting for 10 CPU cores on one host: at most 6 are free. Only hosts with the storage nfs count."
    )
    HostRoot.objects.update(is_present=False)
    run_pass()
    second.refresh_from_db()
    assert second.status == Status.SCHEDULED


def test_dot_folders_never_make_a_session_wait_for_ever(owner: User, host: Host, data: Folder) -> None:
    elsewhere = make_host(group=host.group, cpu=2)
    make_folder(owner, root=make_root(elsewhere, name="elsewhere"), name=".local")
    beside, large, small = (
        submitted(owner, host, MountRequest(folder=data), cpu=1)[0],  # no host has both storages
        submitted(owner, host, cpu=4)[0],  # that with the dot folder is too small
        submitted(owner, host, cpu=2)[0],
    )
    run_pass()
    for session in (beside, large, small):
        session.refresh_from_db()
    assert (beside.host, large.host, small.host) == (host, host, elsewhere)


class TestSettle:
    """What a session that is about to start finds."""

    @pytest.fixture
    def session(self, owner: User, host: Host, data: Folder, root: StorageRoot) -> Session:
        make_folder(owner, root=root, name=".local")
        (session,) = submitted(owner, host, MountRequest(folder=data))
        return session

    def test_renamed_folders_stay_where_they_were_asked_for(self, session: Session, data: Folder) -> None:
        Folder.objects.filter(pk=data.pk).update(name="renamed")
        settled = mounts.settle(session)
        assert [row.path for row, _ in settled.mounts] == ["/home/work/data", "/home/work/.local"]
        assert not settled.refused

    def test_dot_folders_are_those_of_now(self, session: Session, owner: User, root: StorageRoot) -> None:
        Folder.objects.filter(name=".local").update(name="local")
        make_folder(owner, root=root, name=".cache")
        mounts.settle(session)
        assert rows(session) == {
            "/home/work/data": ("data", False, False),
            "/home/work/.cache": (".cache", False, True),
        }

    @pytest.mark.parametrize("change", ["trash", "delete"])
    def test_a_folder_that_is_gone_is_refused(self, session: Session, data: Folder, change: str) -> None:
        if change == "trash":
            Folder.objects.filter(pk=data.pk).update(trashed_at=timezone.now())
        else:
            data.delete()
        (refused,) = mounts.settle(session).refused
        assert refused in ("data: it is in the trash.", "data: it was deleted.")

    def test_shares_are_those_of_now(self, owner: User, host: Host, root: StorageRoot) -> None:
        one, other = (shared(owner, root, name, is_read_only=False) for name in ("one", "other"))
        (session,) = submitted(owner, host, MountRequest(folder=one), MountRequest(folder=other))
        FolderShare.objects.filter(folder=one).update(is_read_only=True)
        FolderShare.objects.filter(folder=other).delete()
        settled = mounts.settle(session)
        assert [(row.path, row.is_read_only) for row, _ in settled.mounts] == [("/home/work/one", True)]
        assert settled.refused == ["other: it is neither yours nor of a project of yours nor shared with you."]

    def test_without_folders_it_takes_one_query(self, django_assert_num_queries: Any) -> None:
        session = make_session()
        with django_assert_num_queries(1):
            assert mounts.settle(session) == ((), ())


class TestApi:
    """Folders in POST /sessions/ and in a session's representation."""

    @pytest.fixture
    def order(self, host: Host) -> dict[str, Any]:
        return {"image": make_image().reference, "cpu": 1, "memory": "1g"}

    def test_folders_are_named_by_id_or_name(
        self, owner: User, order: dict[str, Any], data: Folder, root: StorageRoot
    ) -> None:
        theirs = shared(owner, root)
        asked = [{"folder": "data", "path": "/mnt/d", "read_only": True}, {"folder": theirs.pk}]
        answer = client_of(owner).post("/api/v1/sessions/", order | {"mounts": asked})
        assert answer.status_code == 201, answer.json()
        assert answer.json()[0]["mounts"] == [
            {
                "folder": theirs.pk,
                "name": "theirs",
                "path": "/home/work/theirs",
                "read_only": True,
                "automatic": False,
                "over_quota": False,
                "problem": "",
            },
            {
                "folder": data.pk,
                "name": "data",
                "path": "/mnt/d",
                "read_only": True,
                "automatic": False,
                "over_quota": False,
                "problem": "",
            },
        ]

    def test_an_estimate_takes_the_same_folders(self, owner: User, order: dict[str, Any], data: Folder) -> None:
        url, body = "/api/v1/sessions/estimate/", order | {"mounts": [{"folder": "data"}]}
        assert client_of(owner).post(url, body).json()["starts"] == "now"
        HostRoot.objects.update(is_present=False)
        assert list(client_of(owner).post(url, body).json()["errors"]) == ["mounts"]

    def test_folders_of_strangers_are_unknown(self, owner: User, order: dict[str, Any], root: StorageRoot) -> None:
        stranger = make_folder(root=root, name="secret")
        trashed = make_folder(owner, root=root, name="old", trashed_at=timezone.now())
        for name in (stranger.pk, "secret", "nothing", trashed.pk, "old"):
            answer = client_of(owner).post("/api/v1/sessions/", order | {"mounts": [{"folder": name}]})
            message = f"There is no folder {name!r} of yours; others are named by their id."
            assert answer.json()["errors"] == {"mounts": [message]}
            assert answer.status_code == 400
