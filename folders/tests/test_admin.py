"""The administration of storage roots and folders."""

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import AuditEntry
from folders.models import Folder, HostRoot, StorageRoot
from folders.sharing import folders as services
from gpuplatform.tests.admin_pages import confirm
from tests.api import client_of
from tests.factories import make_folder, make_host, make_policy, make_project, make_root, make_user

FOLDERS = reverse("admin:folders_folder_changelist")
ROOTS = reverse("admin:folders_storageroot_changelist")


@pytest.fixture
def superadmin(client: Client, root: StorageRoot) -> Client:
    client.force_login(make_user(is_superuser=True), backend="django.contrib.auth.backends.ModelBackend")
    return client


def act(client: Client, url: str, action: str, *rows: Folder | StorageRoot) -> str:
    return confirm(client, url, action, [row.pk for row in rows])


def test_actions_trash_restore_and_delete_folders(superadmin: Client, root: StorageRoot) -> None:
    one, two = (services.create(make_user(), "data", root) for _ in range(2))
    assert "2 folders moved to the trash" in act(superadmin, FOLDERS, "move_to_trash", one, two)
    assert "1 folder restored" in act(superadmin, FOLDERS, "restore", one)
    page = act(superadmin, FOLDERS, "delete_forever", one, two)
    assert "1 folder deleted" in page
    assert "Only a folder that is in the trash" in page
    assert list(Folder.objects.all()) == [one]
    assert superadmin.get(FOLDERS, {"state": "live"}).status_code == 200


def test_what_superadmins_do_to_folders_of_others_is_recorded(root: StorageRoot) -> None:
    admin, manager = make_user(is_superuser=True), make_user()
    project = make_project(managers=[manager], policy=make_policy(max_folders=9), name="vision")
    theirs = [services.create(make_user(), "data", root), services.create(project, "data", root)]
    mine = services.create(admin, "data", root)
    for client, folders in ((client_of(admin), [*theirs, mine]), (client_of(manager), theirs[1:])):
        for folder in folders:
            path = f"/api/v1/folders/{folder.pk}/"
            assert client.delete(path).status_code == 204
            assert client.post(f"{path}restore/").status_code == 200
    client = client_of(admin)
    assert client.delete(f"/api/v1/folders/{theirs[0].pk}/").status_code == 204
    assert client.post(f"/api/v1/folders/{theirs[0].pk}/delete-forever/").status_code == 204
    found = AuditEntry.objects.order_by("id")
    assert {(each.actor, each.source) for each in found} == {(admin, "api")}
    acts = ["trash folder", "restore folder"]
    assert [each.action for each in found if each.object_id == theirs[1].pk] == acts
    assert [each.action for each in found if each.object_id == theirs[0].pk] == [*acts, acts[0], "delete folder"]
    assert len(found) == 6, "none for what one owns"


def test_one_root_is_the_default(superadmin: Client, root: StorageRoot) -> None:
    other = make_root(name="other")
    assert "Select one" in act(superadmin, ROOTS, "make_default", root, other)
    assert "New folders are created on other" in act(superadmin, ROOTS, "make_default", other)
    assert list(StorageRoot.objects.filter(is_default=True)) == [other]


def test_a_marker_is_written_into_an_empty_directory(superadmin: Client, tmp_path: Path) -> None:
    other = make_root(name="other", path=str(tmp_path / "other"))
    assert "No such file" in act(superadmin, ROOTS, "write_marker", other)
    (tmp_path / "other").mkdir()
    assert "is marked as other" in act(superadmin, ROOTS, "write_marker", other)


def test_a_root_with_folders_stays_where_it_is(superadmin: Client, root: StorageRoot) -> None:
    url = reverse("admin:folders_storageroot_change", args=[root.pk])
    inlines = {"on_hosts-TOTAL_FORMS": 0, "on_hosts-INITIAL_FORMS": 0}
    form = {"name": "local", "path": "/elsewhere", "is_enabled": "on", **inlines}
    make_folder(root=root)
    assert superadmin.post(url, form).status_code == 302
    root.refresh_from_db()
    assert root.path != "/elsewhere"
    assert (
        superadmin.post(reverse("admin:folders_storageroot_delete", args=[root.pk]), {"post": "yes"}).status_code == 200
    )
    Folder.objects.all().delete()
    assert superadmin.post(url, form).status_code == 302
    root.refresh_from_db()
    assert root.path == "/elsewhere"


def test_a_policy_takes_storage_with_a_unit(superadmin: Client) -> None:
    policy = make_policy()
    page = superadmin.get(reverse("admin:accounts_resourcepolicy_change", args=[policy.pk])).content.decode()
    assert 'type="number" name="storage_files"' in page
    assert 'type="text" name="storage_bytes"' in page


def test_a_missing_root_is_warned_of_above_the_list(superadmin: Client) -> None:
    away = make_root(name="away")
    HostRoot.objects.create(host=make_host(name="gpu1"), root=away, problem="It does not answer.")
    assert "Storage root away is on no host: It does not answer." in superadmin.get(ROOTS).content.decode()
