"""The API of the files in a folder."""

from pathlib import Path

import pytest
from rest_framework.response import Response

from accounts.models import User
from folders.models import Folder, StorageRoot
from folders.sharing import folders as services
from tests.api import client_of
from tests.factories import make_folder, make_policy, make_root, make_user


@pytest.fixture
def owner(root: StorageRoot) -> User:
    return make_user(policy=make_policy(storage_bytes=10_000, storage_files=20))


@pytest.fixture
def folder(owner: User, root: StorageRoot) -> Folder:
    return services.create(owner, "data", root)


def url_of(folder: Folder, part: str = "entries") -> str:
    return f"/api/v1/folders/{folder.pk}/{part}/"


def put_text(owner: User, folder: Folder, path: str, text: str, **headers: str) -> Response:
    url = f"{url_of(folder, 'text')}?path={path}"
    answer: Response = client_of(owner).put(url, {"text": text}, headers=headers)
    return answer


def names(owner: User, folder: Folder, **query: str | int) -> list[str]:
    answer = client_of(owner).get(url_of(folder), query)
    assert answer.status_code == 200, answer.json()
    return [row["name"] for row in answer.json()["results"]]


def test_entries_are_listed_in_order_and_in_pages(owner: User, folder: Folder, files: Path) -> None:
    for name, size in (("b", 1), ("A", 3), ("c", 2)):
        (files / name).write_bytes(b"x" * size)
    (files / "dir").mkdir()
    (files / "link").symlink_to("/etc")
    assert names(owner, folder) == ["dir", "A", "b", "c", "link"]
    assert names(owner, folder, order="-name") == ["dir", "link", "c", "b", "A"]
    assert names(owner, folder, order="-size", page_size=2) == ["dir", "A"]
    assert names(owner, folder, order="-size", page_size=2, page=2) == ["c", "b"]
    page = client_of(owner).get(url_of(folder), {"page_size": 2, "page": 2}).json()
    assert (page["count"], page["is_complete"]) == (5, True)
    assert "page=3" in page["next"]
    assert "page=" not in page["previous"].replace("page_size=", "")
    assert client_of(owner).get(url_of(folder), {"page": 9}).status_code == 404
    kinds = {row["name"]: row["kind"] for row in client_of(owner).get(url_of(folder)).json()["results"]}
    assert kinds == {"dir": "directory", "A": "file", "b": "file", "c": "file", "link": "symlink"}


def test_directories_are_made_moved_and_trashed(owner: User, folder: Folder, files: Path) -> None:
    client = client_of(owner)
    assert client.post(url_of(folder), {"path": "a/b", "parents": True}).status_code == 201
    assert client.post(url_of(folder), {"path": "a"}).status_code == 409
    assert client.post(url_of(folder), {"path": "x/y"}).status_code == 404
    moved = client.post(url_of(folder, "entries/move"), {"path": "a/b", "new_path": "c"})
    assert (moved.status_code, moved.json()["name"]) == (200, "c")
    assert (files / "c").stat().st_uid == 1000
    trashed = client.delete(f"{url_of(folder)}?path=c")
    assert (trashed.status_code, trashed.json()["path"]) == (200, "c")
    assert names(owner, folder) == ["a"]


def test_trash_is_listed_restored_and_emptied(owner: User, folder: Folder, files: Path) -> None:
    client, trash = client_of(owner), url_of(folder, "trash")
    ids = []
    for name in ("one", "two", "three"):
        (files / name).write_text(name)
        ids.append(client.delete(f"{url_of(folder)}?path={name}").json()["id"])
    assert client.get(trash, {"page_size": 2}).json()["count"] == 3
    assert client.post(f"{trash}{ids[0]}/restore/", {"path": "new/place"}).json()["name"] == "place"
    assert client.post(f"{trash}{ids[0]}/restore/", {}).status_code == 404
    (files / "two").write_text("another")
    assert client.post(f"{trash}{ids[1]}/restore/", {}).status_code == 409
    assert client.delete(f"{trash}{ids[1]}/").status_code == 204
    assert client.delete(trash).status_code == 204
    assert client.get(trash).json()["count"] == 0
    assert (files / "new" / "place").read_text() == "one"


def test_text_is_read_and_saved_with_etags(owner: User, folder: Folder, files: Path) -> None:
    made = put_text(owner, folder, "a.txt", "one\n", **{"If-None-Match": "*"})
    assert (made.status_code, (files / "a.txt").read_text()) == (200, "one\n")
    read = client_of(owner).get(url_of(folder, "text"), {"path": "a.txt"})
    assert (read.json()["text"], read.json()["etag"], read["ETag"]) == ("one\n", made["ETag"], made["ETag"])
    assert put_text(owner, folder, "a.txt", "two", **{"If-Match": made["ETag"]}).status_code == 200
    lost = put_text(owner, folder, "a.txt", "three", **{"If-Match": made["ETag"]})
    assert (lost.status_code, (files / "a.txt").read_text()) == (412, "two")
    assert put_text(owner, folder, "a.txt", "four", **{"If-None-Match": "*"}).status_code == 409
    assert put_text(owner, folder, "a.txt", "five").status_code == 428
    assert put_text(owner, folder, "a.txt", "six", **{"If-Match": "*"}).status_code == 200
    assert put_text(owner, folder, "gone.txt", "x", **{"If-Match": "*"}).status_code == 412


def test_only_small_text_files_are_edited(owner: User, folder: Folder, files: Path) -> None:
    (files / "binary").write_bytes(b"\xff\x00")
    (files / "nul").write_bytes(b"a\0b")
    (files / "large").write_bytes(b"x" * (2**20 + 1))
    (files / "link").symlink_to("binary")
    client = client_of(owner)
    codes = {
        name: client.get(url_of(folder, "text"), {"path": name}).status_code for name in ("binary", "nul", "large")
    }
    assert codes == {"binary": 415, "nul": 415, "large": 413}
    assert client.get(url_of(folder, "text"), {"path": "link"}).status_code == 409
    assert put_text(owner, folder, "link", "x", **{"If-Match": "*"}).status_code == 409
    assert put_text(owner, folder, "new", "a\0b", **{"If-None-Match": "*"}).status_code == 400


@pytest.mark.parametrize("path", ["..", "../x", "/etc/passwd", "a/../../x", "a//b", "./a", "a\0b", "a/", "x" * 5000])
def test_a_bad_path_is_refused_at_its_field(owner: User, folder: Folder, path: str) -> None:
    client = client_of(owner)
    answers = [client.get(url_of(folder, part), {"path": path}) for part in ("entries", "text")]
    answers += [client.post(url_of(folder), {"path": path})]
    answers += [client.delete(url_of(folder), query_params={"path": path})]
    assert [(answer.status_code, list(answer.json()["errors"])) for answer in answers] == [(400, ["path"])] * 4
    moved = client.post(url_of(folder, "entries/move"), {"path": "x", "new_path": path})
    assert moved.status_code == 400


def test_the_quota_of_the_owner_counts(owner: User, folder: Folder) -> None:
    other = make_user()
    services.share(folder, other, is_read_only=False)
    large = put_text(other, folder, "large", "x" * 9000, **{"If-None-Match": "*"})
    assert large.status_code == 200
    refused = put_text(other, folder, "more", "x" * 2000, **{"If-None-Match": "*"})
    assert (refused.status_code, "quota" in refused.data["detail"]) == (413, True)
    assert put_text(other, folder, "large", "x" * 8000, **{"If-Match": "*"}).status_code == 200
    for number in range(19):
        assert client_of(other).post(url_of(folder), {"path": f"d{number}"}).status_code == 201
    assert client_of(other).post(url_of(folder), {"path": "one-more"}).status_code == 413


def test_deleting_forever_frees_quota(owner: User, folder: Folder) -> None:
    assert put_text(owner, folder, "large", "x" * 9000, **{"If-None-Match": "*"}).status_code == 200
    client_of(owner).delete(f"{url_of(folder)}?path=large")
    assert put_text(owner, folder, "more", "x" * 2000, **{"If-None-Match": "*"}).status_code == 413
    client_of(owner).delete(url_of(folder, "trash"))
    assert put_text(owner, folder, "more", "x" * 2000, **{"If-None-Match": "*"}).status_code == 200


def test_read_only_shares_change_nothing(owner: User, folder: Folder, files: Path) -> None:
    (files / "a").write_text("a")
    guest = services.share(folder, make_user()).user
    client = client_of(guest)
    assert names(guest, folder) == ["a"]
    assert client.get(url_of(folder, "text"), {"path": "a"}).json()["text"] == "a"
    refused = [
        client.post(url_of(folder), {"path": "d"}),
        client.post(url_of(folder, "entries/move"), {"path": "a", "new_path": "b"}),
        client.delete(f"{url_of(folder)}?path=a"),
        client.delete(url_of(folder, "trash")),
        put_text(guest, folder, "a", "b", **{"If-Match": "*"}),
    ]
    assert {answer.status_code for answer in refused} == {403}


def test_a_trashed_folder_is_read_only_for_its_owner(owner: User, folder: Folder, files: Path) -> None:
    (files / "a").write_text("a")
    services.trash(folder)
    assert names(owner, folder) == ["a"]
    assert client_of(owner).post(url_of(folder), {"path": "d"}).status_code == 409


def test_strangers_reach_no_files(folder: Folder) -> None:
    client = client_of(make_user())
    item = "0" * 32
    answers = [client.get(url_of(folder, part), {"path": "a"}) for part in ("entries", "text")]
    answers += [client.get(url_of(folder, "trash"))]
    answers += [client.post(url_of(folder), {"path": "a"}), client.delete(f"{url_of(folder)}?path=a")]
    answers += [client.post(url_of(folder, "entries/move"), {"path": "a", "new_path": "b"})]
    answers += [client.delete(url_of(folder, "trash")), client.delete(url_of(folder, f"trash/{item}"))]
    answers += [client.post(url_of(folder, f"trash/{item}/restore"), {})]
    answers += [client.put(f"{url_of(folder, 'text')}?path=a", {"text": ""}, headers={"If-Match": "*"})]
    assert {answer.status_code for answer in answers} == {404}


def test_a_missing_root_is_503_with_where_to_go(owner: User) -> None:
    folder = make_folder(owner, root=make_root(name="away"))
    answer = client_of(owner).get(url_of(folder))
    assert answer.status_code == 503
    assert "No host has the storage root away" in answer.json()["detail"]
    assert client_of(owner).get(f"/api/v1/folders/{folder.pk}/").status_code == 200
