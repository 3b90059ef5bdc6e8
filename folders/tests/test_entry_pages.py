"""The pages of a folder's files: browse, preview, edit, and what is done with entries."""

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest
from django.test import Client

from accounts.models import User
from folders.models import Folder, StorageRoot
from folders.pages.browser_views import PAGE_SIZE
from folders.pages.previews import MAX_NOTEBOOK_BYTES
from folders.sharing import folders as services
from folders.storage import paths as storage
from tests.factories import make_policy, make_user
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser(owner: User) -> Client:
    return browser_of(owner)


def url(folder: Folder, view: str = "", path: str = "") -> str:
    return f"/folders/{folder.pk}/{view}?path={quote(path)}"


def message_of(response: object) -> str:
    """Return the message that htmx gets."""
    return str(json.loads(response.headers["HX-Trigger"])["folder:done"]["message"])  # type: ignore[attr-defined]


def test_a_directory_lists_directories_first(browser: Client, folder: Folder, files: Path) -> None:
    (files / "data" / "deep").mkdir(parents=True)
    (files / "a.txt").write_text("hello")
    (files / "new\nline & <b>.txt").write_text("x")
    os.symlink("/etc/passwd", files / "link")
    page = text_of(browser, url(folder))
    assert page.index(">data<") < page.index(">a.txt<")
    assert "5 B" in page
    assert "<b>.txt" not in page
    assert ">deep<" in text_of(browser, url(folder, path="data"))


def test_a_name_with_any_character_can_be_opened(browser: Client, folder: Folder, files: Path) -> None:
    for name in ("new\nline", "50% & more?.txt", "안녕.txt", "#1"):
        (files / name).write_text("in " + name.split()[0])
        assert "in " in text_of(browser, url(folder, "file/", name))


def test_long_directories_have_pages(browser: Client, folder: Folder, files: Path) -> None:
    for number in range(PAGE_SIZE + 1):
        (files / f"{number:04}").touch()
    first, second = (text_of(browser, f"{url(folder)}&page={page}") for page in (1, 2))
    assert "0199" in first
    assert "0200" not in first
    assert f">0{PAGE_SIZE}<" in second
    assert f"201 of {PAGE_SIZE + 1}" in second
    assert "Nothing on this page" in text_of(browser, f"{url(folder)}&page=9")
    for page in ("0", "-1", "x", "٣", "9" * 30):
        assert "0000" in text_of(browser, f"{url(folder)}&page={page}")


@pytest.mark.parametrize("path", ["nowhere", "../..", "/etc", "a\0b", "link", "x" * 300, "a.txt/b"])
def test_a_bad_path_shows_nothing(browser: Client, folder: Folder, files: Path, path: str) -> None:
    (files / "a.txt").touch()
    os.symlink("/", files / "link")
    assert browser.get(url(folder, path=path)).status_code in (404, 503)
    assert browser.get(url(folder, path=path), headers=HTMX).status_code == 200  # with the reason in it


def test_a_missing_root_is_explained(browser: Client, folder: Folder, root: StorageRoot) -> None:
    Path(root.path, ".gpuplatform-root").unlink()
    for view in ("", "file/", "trash/", "edit/"):
        response = browser.get(url(folder, view, "a"))
        assert (response.status_code, "cannot be shown here now" in response.content.decode()) == (503, True)


def test_previews_of_texts_and_images(browser: Client, folder: Folder, files: Path) -> None:
    (files / "a.py").write_text("<script>alert(1)</script>")
    (files / "a.png").write_bytes(b"not looked at")
    (files / "a.svg").write_text("<svg onload='alert(1)'/>")
    (files / "big.log").write_text("line\n" * 100_000)
    (files / "a.bin").write_bytes(bytes(range(256)))
    expected = {
        "a.py": "&lt;script&gt;alert(1)",
        "a.png": "inline=1",
        "a.svg": "&lt;svg",
        "big.log": "This is the beginning",
        "a.bin": "No preview",
    }
    for name, words in expected.items():
        page = text_of(browser, url(folder, "file/", name))
        assert words in page, name
        assert "<script>alert" not in page


def test_notebooks_are_left_to_the_browser(browser: Client, folder: Folder, files: Path) -> None:
    (files / "a.ipynb").write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "secret"}]}))
    page = text_of(browser, url(folder, "file/", "a.ipynb"))
    assert f'data-source="/api/v1/folders/{folder.pk}/download/?path=a.ipynb"' in page
    assert "secret" not in page
    with (files / "b.ipynb").open("wb") as large:
        large.write(b"plain text")
        large.truncate(MAX_NOTEBOOK_BYTES + 1)
    assert "No preview" in text_of(browser, url(folder, "file/", "b.ipynb"))


def test_a_link_or_device_is_not_opened(browser: Client, folder: Folder, files: Path) -> None:
    os.symlink("/etc/passwd", files / "link")
    os.mkfifo(files / "pipe")
    for name in ("link", "pipe"):
        page = text_of(browser, url(folder, "file/", name))
        assert "Not opened here" in page
        assert "root:" not in page


def test_directories_and_files_are_made(browser: Client, folder: Folder, files: Path) -> None:
    made = browser.post(url(folder, "new-directory/"), {"path": "", "name": "data"}, headers=HTMX)
    assert (made.status_code, message_of(made)) == (204, "Made the directory data.")
    browser.post(url(folder, "new-directory/"), {"path": "data/a/b", "name": "c", "parents": "1"}, headers=HTMX)
    assert (files / "data/a/b/c").is_dir()
    opened = browser.post(url(folder, "new-file/"), {"path": "data", "name": "notes.md"}, headers=HTMX)
    assert "/edit/?path=data%2Fnotes.md" in opened.headers["HX-Trigger"]
    assert (files / "data/notes.md").read_text() == ""
    for name, words in (
        ("", "needs a name"),
        ("a/b", "no slash"),
        ("..", ".."),
        ("data", "already"),
        ("x" * 256, "255"),
    ):
        refused = browser.post(url(folder, "new-directory/"), {"path": "", "name": name}, headers=HTMX)
        assert (refused.status_code, words in refused.content.decode()) == (422, True), name


def test_entries_are_renamed_and_moved(browser: Client, folder: Folder, files: Path) -> None:
    (files / "data").mkdir()
    for name in ("a", "b", "data/b"):
        (files / name).write_text(name)
    browser.post(url(folder, "rename-entry/"), {"path": "a", "name": "c"}, headers=HTMX)
    assert (files / "c").read_text() == "a"
    taken = browser.post(url(folder, "rename-entry/"), {"path": "c", "name": "b"}, headers=HTMX)
    assert taken.status_code == 422
    dialog = browser.post(url(folder, "move-entries/"), {"path": ["c", "b"], "directory": ""}, headers=HTMX)
    assert "Move 2 entries" in dialog.content.decode()
    assert 'value="data"' in dialog.content.decode()
    moved = browser.post(url(folder, "move-entries/"), {"path": ["c", "b"], "to": "data"}, headers=HTMX)
    assert (files / "data/c").read_text() == "a"
    assert message_of(moved).startswith("1 entry moved to data.")
    assert "b:" in message_of(moved)  # data/b exists, and stays
    assert (files / "data/b").read_text() == "data/b"


def test_a_directory_is_not_moved_into_itself(browser: Client, folder: Folder, files: Path) -> None:
    (files / "data/deep").mkdir(parents=True)
    dialog = browser.post(url(folder, "move-entries/"), {"path": ["data"], "directory": ""}, headers=HTMX)
    assert 'name="open" value="data"' not in dialog.content.decode()
    browser.post(url(folder, "move-entries/"), {"path": ["data"], "to": "data/deep"}, headers=HTMX)
    assert (files / "data/deep").is_dir()


def test_deleted_files_are_restored_or_gone_for_ever(browser: Client, folder: Folder, files: Path) -> None:
    (files / "data").mkdir()
    for name in ("a", "b", "data/c"):
        (files / name).write_text(name)
    response = browser.post(url(folder, "trash-entries/"), {"path": ["a", "b", "data/c", "nowhere"]}, headers=HTMX)
    assert message_of(response).startswith("3 entries moved to the trash. nowhere:")
    page = text_of(browser, url(folder, "trash/"))
    assert "from data" in page
    items = {item.path: item.id for item in storage.files_of(folder).trash.items()}
    browser.post(url(folder, "restore-entries/"), {"items": [items["data/c"]]}, headers=HTMX)
    assert (files / "data/c").read_text() == "data/c"
    asked = browser.post(url(folder, "delete-entries/"), {"items": [items["a"]]}, headers=HTMX)
    assert "Delete 1 entry for ever?" in asked.content.decode()
    browser.post(url(folder, "delete-entries/"), {"items": [items["a"]], "confirm": "1"}, headers=HTMX)
    assert [item.path for item in storage.files_of(folder).trash.items()] == ["b"]
    assert "Empty the trash" in text_of(browser, url(folder, "empty-trash/"))
    emptied = browser.post(url(folder, "empty-trash/"), headers=HTMX)
    assert message_of(emptied) == "1 entry is deleted for ever."
    assert "Nothing was deleted here" in text_of(browser, url(folder, "trash/"))


def test_deleting_files_and_folders_is_undone(browser: Client, folder: Folder, files: Path) -> None:
    (files / "a").write_text("kept")
    deleted = browser.post(url(folder, "trash-entries/"), {"path": ["a"]}, headers=HTMX)
    undo = json.loads(deleted.headers["HX-Trigger"])["folder:done"]["undo"]
    assert not (files / "a").exists()
    browser.post(undo["url"], undo["values"], headers=HTMX)
    assert (files / "a").read_text() == "kept"
    page = browser.post(f"/folders/{folder.pk}/delete/", follow=True).content.decode()
    assert f'action="/folders/{folder.pk}/restore/"' in page
    folder.refresh_from_db()
    assert folder.trashed_at is not None
    page = browser.post(f"/folders/{folder.pk}/restore/", follow=True).content.decode()
    assert f"{folder.name} is restored." in page
    folder.refresh_from_db()
    assert folder.trashed_at is None


def test_without_htmx_actions_lead_back_to_the_page(browser: Client, folder: Folder, files: Path) -> None:
    (files / "data").mkdir()
    (files / "data/a").touch()
    response = browser.post(url(folder, "trash-entries/"), {"path": ["data/a"]}, follow=True)
    assert response.redirect_chain[-1][0] == f"/folders/{folder.pk}/?path=data"
    assert "1 entry moved to the trash." in response.content.decode()


def edit(browser: Client, folder: Folder, text: str | bytes, etag: str, **headers: str) -> tuple[int, dict[str, str]]:
    """Save as the page's script does; return the status and the answer."""
    response = browser.put(
        url(folder, "edit/", "a.txt"), text, content_type="text/plain", headers={"If-Match": etag} | headers
    )
    return response.status_code, response.json()


def test_a_text_is_saved_over_what_was_read(browser: Client, folder: Folder, files: Path) -> None:
    (files / "a.txt").write_text("\none")
    page = browser.get(url(folder, "edit/", "a.txt"))
    assert "autofocus>\n\none</textarea>" in page.content.decode()
    etag = page.context["etag"]
    status, answer = edit(browser, folder, "two 안녕", etag)
    assert (status, (files / "a.txt").read_text()) == (200, "two 안녕")
    (files / "a.txt").write_text("of a session")
    status, conflict = edit(browser, folder, "three", answer["etag"])
    assert (status, (files / "a.txt").read_text()) == (412, "of a session")
    assert edit(browser, folder, "three", "")[0] == 412
    assert edit(browser, folder, "three", conflict["etag"])[0] == 200
    assert (files / "a.txt").read_text() == "three"
    assert edit(browser, folder, b"\xff", answer["etag"])[0] == 400
    (files / "a.txt").unlink()
    assert edit(browser, folder, "four", conflict["etag"])[0] in (404, 412)


def test_line_ends_stay_as_they_were(browser: Client, folder: Folder, files: Path) -> None:
    (files / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    page = browser.get(url(folder, "edit/", "a.txt"))
    assert "data-crlf" in page.content.decode()
    edit(browser, folder, "one\nthree\n", page.context["etag"], **{"X-Line-Ends": "crlf"})
    assert (files / "a.txt").read_bytes() == b"one\r\nthree\r\n"


def test_a_text_is_saved_without_script_too(browser: Client, folder: Folder, files: Path) -> None:
    (files / "a.txt").write_text("one")
    etag = browser.get(url(folder, "edit/", "a.txt")).context["etag"]
    path = url(folder, "edit/", "a.txt")
    assert browser.post(path, {"text": "two\r\nlines", "etag": etag}).status_code == 302
    assert (files / "a.txt").read_bytes() == b"two\nlines"
    refused = browser.post(path, {"text": "mine", "etag": etag})
    assert (refused.status_code, "mine</textarea>" in refused.content.decode()) == (412, True)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b", b"x" * (2**20 + 1)])
def test_what_is_no_small_text_is_not_edited(browser: Client, folder: Folder, files: Path, content: bytes) -> None:
    (files / "a.txt").write_bytes(content)
    response = browser.get(url(folder, "edit/", "a.txt"), follow=True)
    assert response.redirect_chain
    assert "alert-" in response.content.decode()


def test_a_full_quota_is_said(browser: Client, owner: User, folder: Folder, files: Path) -> None:
    owner.policy = make_policy(storage_bytes=10, storage_files=1)
    owner.save()
    (files / "a.txt").write_text("one")
    etag = browser.get(url(folder, "edit/", "a.txt")).context["etag"]
    status, answer = edit(browser, folder, "x" * 100, etag)
    assert status == 413
    assert "quota" in answer["detail"]
    Folder.objects.update(used_files=1)
    refused = browser.post(url(folder, "new-directory/"), {"path": "", "name": "data"}, headers=HTMX)
    assert (refused.status_code, "quota" in refused.content.decode()) == (422, True)


def test_a_writer_of_a_share_may_change_files(folder: Folder, files: Path) -> None:
    friend = make_user()
    services.share(folder, friend, is_read_only=False)
    browser_of(friend).post(url(folder, "new-directory/"), {"path": "", "name": "data"}, headers=HTMX)
    assert (files / "data").is_dir()
