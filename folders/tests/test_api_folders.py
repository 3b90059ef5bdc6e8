"""The API of folders, shares and storage roots."""

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from folders.models import Folder, FolderShare, StorageRoot
from folders.sharing import folders as services
from tests.api import client_of
from tests.factories import make_folder, make_host, make_policy, make_root, make_user

URL = "/api/v1/folders/"


@pytest.fixture
def folder(owner: User, root: StorageRoot) -> Folder:
    return services.create(owner, "data", root)


def test_creating_listing_and_renaming_a_folder(owner: User) -> None:
    client = client_of(owner)
    made = client.post(URL, {"name": ".local"})
    assert made.status_code == 201, made.json()
    assert made.json() | {"name": ".local", "root": "local", "access": "write", "is_automounted": True} == made.json()
    renamed = client.patch(f"{URL}{made.json()['id']}/", {"name": "other"})
    assert (renamed.status_code, renamed.json()["name"], renamed.json()["is_automounted"]) == (200, "other", False)
    assert [row["name"] for row in client.get(URL).json()["results"]] == ["other"]


@pytest.mark.parametrize(
    "name",
    ["", " a", "a/b", "..", ".", "-a", "a.", "ü", "a" * 65, ".ssh", ".SSH", "id_container", "a\n", "a\0", None, 5.5],
)
def test_a_bad_name_is_refused_at_its_field(owner: User, folder: Folder, name: object) -> None:
    client = client_of(owner)
    for answer in (client.post(URL, {"name": name}), client.patch(f"{URL}{folder.pk}/", {"name": name})):
        assert (answer.status_code, list(answer.json()["errors"])) == (400, ["name"])


def test_a_name_is_taken_once_for_each_owner(owner: User, folder: Folder) -> None:
    assert client_of(owner).post(URL, {"name": "data"}).json()["errors"] == {
        "name": ["You have a folder called data already."]
    }
    assert client_of(make_user()).post(URL, {"name": "data"}).status_code == 201


def test_the_policy_limits_the_number_of_folders(root: StorageRoot) -> None:
    client = client_of(make_user(policy=make_policy(max_folders=1)))
    first = client.post(URL, {"name": "one"}).json()["id"]
    assert "Your policy allows 1" in client.post(URL, {"name": "two"}).json()["errors"]["name"][0]
    assert client.delete(f"{URL}{first}/").status_code == 204
    assert client.post(URL, {"name": "two"}).status_code == 201
    assert "Your policy allows 1" in client.post(f"{URL}{first}/restore/", {}).json()["errors"]["name"][0]


def test_bad_storage_roots_are_refused(owner: User, root: StorageRoot) -> None:
    client = client_of(owner)
    make_root(name="closed", is_enabled=False)
    assert list(client.post(URL, {"name": "x", "root": "none"}).json()["errors"]) == ["root"]
    assert list(client.post(URL, {"name": "x", "root": "closed"}).json()["errors"]) == ["root"]
    StorageRoot.objects.update(is_enabled=False)
    assert list(client.post(URL, {"name": "x"}).json()["errors"]) == ["root"]
    assert list(client.post(URL, {"name": "x", "size": 1}).json()["errors"]) == ["size"]


def test_trash_restore_and_delete_forever(owner: User, folder: Folder) -> None:
    client, url = client_of(owner), f"{URL}{folder.pk}/"
    assert client.post(f"{url}delete-forever/").status_code == 409
    for _ in range(2):
        assert client.delete(url).status_code == 204
    assert client.get(URL).json()["count"] == 0
    assert client.get(URL, {"state": "trash"}).json()["results"][0]["access"] == "read"
    assert client.patch(url, {"name": "new"}).status_code == 409
    client.post(URL, {"name": "data"})
    assert list(client.post(f"{url}restore/", {}).json()["errors"]) == ["name"]
    assert client.post(f"{url}restore/", {"name": "data-2"}).json()["trashed_at"] is None
    client.delete(url)
    assert client.post(f"{url}delete-forever/").status_code == 204
    assert client.get(url).status_code == 404
    assert not Folder.objects.filter(pk=folder.pk).exists()


def test_a_stranger_sees_no_folder(folder: Folder) -> None:
    client, url = client_of(make_user()), f"{URL}{folder.pk}/"
    assert client.get(URL).json()["count"] == 0
    assert client.get(URL, {"scope": "all"}).json()["count"] == 0
    answers = [client.get(url), client.patch(url, {"name": "x"}), client.delete(url), client.get(f"{url}shares/")]
    answers += [client.post(f"{url}{name}/", {}) for name in ("restore", "delete-forever", "shares")]
    assert {answer.status_code for answer in answers} == {404}
    assert client_of().get(URL).status_code == 401


def test_a_share_gives_what_it_says(owner: User, folder: Folder) -> None:
    other, url = make_user(), f"{URL}{folder.pk}/"
    client, guest = client_of(owner), client_of(other)
    made = client.post(f"{url}shares/", {"user": other.email.upper()})
    assert made.json() | {"user": other.email, "read_only": True} == made.json()
    assert guest.get(url).json()["access"] == "read"
    assert [row["id"] for row in guest.get(URL, {"scope": "shared"}).json()["results"]] == [folder.pk]
    assert guest.get(URL, {"scope": "own"}).json()["count"] == 0
    assert client.patch(f"{url}shares/{made.json()['id']}/", {"read_only": False}).json()["read_only"] is False
    assert guest.get(url).json()["access"] == "write"
    refused = [guest.patch(url, {"name": "x"}), guest.delete(url), guest.get(f"{url}shares/")]
    refused += [guest.post(f"{url}shares/", {"user": other.email}), guest.post(f"{url}restore/", {})]
    assert {answer.status_code for answer in refused} == {403}
    assert client.get(f"{url}shares/").json()["count"] == 1
    assert client.delete(f"{url}shares/{made.json()['id']}/").status_code == 204
    assert guest.get(url).status_code == 404


def test_a_share_may_be_given_up(owner: User, folder: Folder) -> None:
    share = services.share(folder, make_user())
    other = services.share(folder, make_user())
    guest = client_of(share.user)
    assert guest.delete(f"{URL}{folder.pk}/shares/{other.pk}/").status_code == 403
    assert guest.delete(f"{URL}{folder.pk}/shares/{share.pk}/").status_code == 204
    assert list(FolderShare.objects.all()) == [other]


def test_bad_shares_are_refused(owner: User, folder: Folder) -> None:
    client, url = client_of(owner), f"{URL}{folder.pk}/shares/"
    for email in (owner.email, "nobody@example.org", "x", make_user(is_active=False).email):
        assert list(client.post(url, {"user": email}).json()["errors"]) == ["user"], email
    assert client.post(url, {"user": make_user().email, "read_only": "maybe"}).status_code == 400
    assert client.delete(f"{url}999999/").status_code == 404


def test_a_trashed_folder_is_shared_with_nobody(owner: User, folder: Folder) -> None:
    guest = client_of(services.share(folder, make_user()).user)
    services.trash(folder)
    assert guest.get(f"{URL}{folder.pk}/").status_code == 404
    services.restore(folder)
    assert guest.get(f"{URL}{folder.pk}/").status_code == 200


def test_superadmins_see_folders_but_no_files(folder: Folder) -> None:
    client, url = client_of(make_user(is_superuser=True)), f"{URL}{folder.pk}/"
    assert client.get(URL).json()["count"] == 0
    assert client.get(URL, {"scope": "all"}).json()["results"][0]["access"] == "none"
    assert client.get(f"{url}entries/").status_code == 403
    assert client.patch(url, {"name": "x"}).status_code == 403
    assert client.delete(url).status_code == 204
    assert client.post(f"{url}restore/", {}).status_code == 200


def test_the_list_takes_the_same_queries_for_any_number(
    owner: User, root: StorageRoot, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        folder = make_folder(root=root)
        services.share(folder, owner)
    with django_assert_max_num_queries(3):
        assert client_of(owner).get(URL).json()["count"] == 5


def test_storage_roots_tell_hosts_use_and_problems(owner: User, root: StorageRoot) -> None:
    owner.policy.storage_bytes = 1000
    owner.policy.save()
    make_folder(owner, root=root, used_bytes=10, used_files=2)
    far = make_root(make_host(name="far"), name="far")
    first, second = client_of(owner).get("/api/v1/storage-roots/").json()["results"]
    assert (first["name"], first["problem"]) == (root.name, "")
    assert first["use"] == {"used_bytes": 10, "used_files": 2, "max_bytes": 1000, "max_files": None}
    assert (second["name"], second["hosts"], second["use"]["used_bytes"]) == (far.name, ["far"], 0)
    assert "Sessions on far" in second["problem"]
