"""Folders of projects: members read and write them, managers manage them, and the project's policy bounds them."""

from http import HTTPStatus
from pathlib import Path

import pytest
from pytest_django import DjangoAssertNumQueries

from folders.errors import FolderAccessError, FolderRejectedError, StorageQuotaError
from folders.models import PROJECT_NUMBERS, Folder
from folders.quotas import rules as quota
from folders.sharing import folders as services
from folders.sharing.access import Access, access, require
from folders.storage import paths as storage
from sessions.launching import mounts
from sessions.models import Mount
from sessions.projects import services as projects
from tests.api import client_of
from tests.factories import make_folder, make_host, make_policy, make_project, make_root, make_user, run_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db
URL = "/api/v1/folders/"


def test_rights_to_folders_of_projects_follow_the_role() -> None:
    manager, member, stranger, admin = make_user(), make_user(), make_user(), make_user(is_superuser=True)
    project = make_project(member, managers=[manager], policy=make_policy(max_folders=1))
    folder = make_folder(project=project, name="corpus")
    users = (manager, member, stranger, admin)
    assert [access(user, folder) for user in users] == [Access.WRITE, Access.WRITE, Access.NONE, Access.NONE]
    annotated = [Folder.objects.with_rights_of(user).get(pk=folder.pk) for user in users]
    assert [access(*pair) for pair in zip(users, annotated, strict=True)] == [access(user, folder) for user in users]
    readable = [Folder.objects.readable_by(user).filter(pk=folder.pk).exists() for user in users]
    assert readable == [True, True, False, False]
    with pytest.raises(FolderRejectedError, match="allows 1 data folders"):
        services.create(project, "more", folder.root)
    services.trash(folder)
    assert [access(user, folder) for user in users[:3]] == [Access.READ, Access.NONE, Access.NONE]


def test_who_leaves_a_shared_project_folder_reads_whose_it_is() -> None:
    guest, folder = make_user(), make_folder(project=make_project(name="vision"))
    services.share(folder, guest)
    assert "Its owner, vision, can share it" in text_of(browser_of(guest), f"/folders/{folder.pk}/leave/")


def test_managers_create_and_manage_folders_of_their_projects(tmp_path: Path) -> None:
    manager, member = make_user(), make_user()
    project = make_project(member, managers=[manager], name="vision", policy=make_policy(storage_bytes=1000))
    root = make_root(make_host(), name="data", path=str(tmp_path), is_default=True)
    storage.prepare_root(root)
    refused = client_of(member).post(URL, {"name": "corpus", "project": "vision"})
    assert refused.status_code == HTTPStatus.BAD_REQUEST
    made = client_of(manager).post(URL, {"name": "corpus", "project": "vision"})
    assert made.status_code == HTTPStatus.CREATED, made.content
    assert (made.json()["owner"], made.json()["project"], made.json()["access"]) == (None, "vision", "write")
    folder = Folder.objects.get()
    assert (tmp_path / str(PROJECT_NUMBERS + project.pk) / folder.pk / "files").is_dir()
    address = f"{URL}{folder.pk}/"
    assert client_of(member).patch(address, {"name": "other"}).status_code == HTTPStatus.FORBIDDEN
    assert client_of(manager).patch(address, {"name": "other"}).status_code == HTTPStatus.OK
    assert client_of(member).get(address).json()["access"] == "write"
    with pytest.raises(StorageQuotaError):
        quota.check_room(folder, add_bytes=1001)
    assert client_of(member).delete(address).status_code == HTTPStatus.FORBIDDEN
    assert client_of(manager).delete(address).status_code == HTTPStatus.NO_CONTENT
    assert client_of(manager).post(f"{address}delete-forever/").status_code == HTTPStatus.NO_CONTENT
    assert not Folder.objects.exists()
    assert not list((tmp_path / str(PROJECT_NUMBERS + project.pk)).glob(folder.pk))


def test_pages_list_and_create_folders_of_projects(tmp_path: Path) -> None:
    manager, member = make_user(), make_user()
    project = make_project(member, managers=[manager], name="vision", policy=make_policy())
    root = make_root(make_host(), name="data", path=str(tmp_path), is_default=True)
    storage.prepare_root(root)
    assert "of the project vision" in text_of(browser_of(manager), "/folders/create/")
    assert "of the project vision" not in text_of(browser_of(member), "/folders/create/")
    form = {"name": "corpus", "project": project.pk, "root": root.pk}
    assert browser_of(member).post("/folders/create/", form).status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert browser_of(manager).post("/folders/create/", form).status_code == HTTPStatus.FOUND
    folder = Folder.objects.get(project=project)
    assert "of vision" in text_of(browser_of(member), "/folders/?tab=shared")
    assert browser_of(member).get(f"/folders/{folder.pk}/").status_code == HTTPStatus.OK
    assert browser_of(member).get(f"/folders/{folder.pk}/rename/").status_code == HTTPStatus.NOT_FOUND
    assert browser_of(manager).get(f"/folders/{folder.pk}/rename/").status_code == HTTPStatus.OK
    assert "corpus" in text_of(browser_of(member), f"/projects/{project.pk}/")


def test_members_mount_folders_of_their_projects_until_they_leave() -> None:
    member, stranger = make_user(), make_user()
    project = make_project(member, policy=make_policy())
    folder = make_folder(project=project, name=".cache")
    assert [(each.folder, each.is_automatic) for each in mounts.offered_folders(member)] == [(folder, False)]
    wanted = [mounts.MountRequest(folder=folder, path="cache")]
    assert not mounts.plan(member, wanted).problems
    assert mounts.plan(stranger, wanted).problems
    session = run_session(owner=member, project=project)
    Mount.objects.create(session=session, folder=folder, folder_name="cache", path="/home/work/cache")
    assert not mounts.settle(session).refused
    projects.remove_member(project.memberships.get(user=member), actor=member)
    assert mounts.settle(session).refused
    with pytest.raises(FolderAccessError):
        require(member, folder, Access.READ)


def test_a_project_without_a_policy_has_no_storage() -> None:
    project = make_project(policy=None)
    with pytest.raises(FolderRejectedError, match="has no policy"):
        services.create(project, "corpus", make_root())
    assert quota.limits_of(project) == (0, 0)


def test_the_number_of_a_directory_takes_no_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    owner, project = make_user(), make_project()
    folders = Folder.objects.in_bulk([make_folder(owner).pk, make_folder(project=project).pk])
    with django_assert_num_queries(0):  # hosts may not read all of a user's row
        numbers = {folder.holder_number for folder in folders.values()}
    assert numbers == {owner.pk, PROJECT_NUMBERS + project.pk}
