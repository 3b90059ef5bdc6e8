"""Data folders in a real browser: upload and resume, drag and drop, the editor, a share, and by keyboard alone."""

import os
import re
from base64 import b64encode
from pathlib import Path
from zipfile import ZipFile

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from accounts.models import User
from folders.contents import services as contents
from folders.models import Folder, StorageRoot
from folders.storage import paths as storage
from tests.browser import allow_errors, signed_in
from tests.factories import make_user
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

MIB = 2**20


@pytest.fixture
def directory(folder: Folder) -> Path:
    """The directory of the folder on its root."""
    return Path(storage.root_directory(folder.root).folder_path(folder.holder_number, folder.pk))


def entry(page: Page, name: str) -> Locator:
    return page.locator("[data-entry]").get_by_text(name, exact=True)


def drop(page: Page, name: str, text: str) -> None:
    """Drag a file over the page and let it go."""
    transfer = page.evaluate_handle(
        "([name, text]) => { const made = new DataTransfer(); made.items.add(new File([text], name)); return made; }",
        [name, text],
    )
    page.dispatch_event(".drop-card", "dragenter", {"dataTransfer": transfer})
    with page.expect_response("**"):  # the list is updated meanwhile
        page.evaluate("() => document.dispatchEvent(new CustomEvent('live:changed'))")
    expect(page.get_by_text("Drop to upload to")).to_be_visible()
    page.dispatch_event(".drop-card", "drop", {"dataTransfer": transfer})
    expect(page.get_by_text("Drop to upload to")).to_be_hidden()


def test_an_upload_goes_on_after_a_reload(
    page: Page, context: BrowserContext, folder: Folder, directory: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.bin"
    model.write_bytes(os.urandom(24 * MIB))
    allow_errors(context, "net::ERR_INTERNET_DISCONNECTED")
    page.on("dialog", lambda dialog: dialog.accept())  # "leave the page?"
    network = context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": MIB}
    page.goto(f"/folders/{folder.pk}/")
    network.send("Network.enable")
    network.send("Network.emulateNetworkConditions", slow)
    page.locator("#pick-files").set_input_files(model)
    expect(page.locator("#uploads")).to_contain_text("Uploading 1 of 1 file")
    until(lambda: any(part.stat().st_size > MIB // 4 for part in (directory / "uploads").iterdir()))
    page.get_by_role("button", name="Pause model.bin").click()
    expect(page.locator("#uploads li")).to_contain_text("paused at")
    page.route("**/uploads/**", lambda route: route.abort("internetdisconnected"))
    page.get_by_role("button", name="Resume model.bin").click()
    expect(page.locator("#uploads li")).to_contain_text("connection lost, trying again")
    page.unroute("**/uploads/**")
    expect(page.locator("#uploads li[data-state=sending]")).to_be_visible()
    page.reload()
    expect(page.locator("#uploads")).to_contain_text(re.compile(r"interrupted: [\d.]+ [KM]iB of 24 MiB arrived"))
    network.send("Network.emulateNetworkConditions", slow | {"uploadThroughput": -1})
    other = tmp_path / "other" / "model.bin"
    other.parent.mkdir()
    other.write_bytes(b"x")
    with page.expect_file_chooser() as choosing:
        page.get_by_role("button", name="Choose the file again: model.bin").click()
    choosing.value.set_files(other)
    expect(page.locator("#uploads")).to_contain_text("This is another file")
    with page.expect_file_chooser() as choosing:
        page.get_by_role("button", name="Choose the file again: model.bin").click()
    with page.expect_request(lambda request: request.method == "PATCH") as patch:
        choosing.value.set_files(model)
    assert int(patch.value.headers["upload-offset"]) > MIB // 4
    expect(page.locator("#uploads")).to_contain_text("1 file uploaded")
    expect(entry(page, "model.bin")).to_be_visible()
    assert (directory / "files/model.bin").read_bytes() == model.read_bytes()


def test_files_directories_and_drops_are_uploaded(page: Page, folder: Folder, files: Path, tmp_path: Path) -> None:
    (files / "a.txt").write_text("old a")
    (files / "b.txt").write_text("old b")
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for name in ("data/1", "data/deep/2"):
        (tmp_path / name).write_text(name)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"new {name}")
    page.goto(f"/folders/{folder.pk}/")
    page.locator("#pick-directory").set_input_files(tmp_path / "data")
    expect(page.locator("#uploads")).to_contain_text("2 files uploaded")
    assert (files / "data/deep/2").read_text() == "data/deep/2"
    entry(page, "data").click()  # the page stays, and so would uploads
    expect(entry(page, "deep")).to_be_visible()
    drop(page, "dropped.txt", "by mouse")
    expect(entry(page, "dropped.txt")).to_be_visible()
    assert (files / "data/dropped.txt").read_text() == "by mouse"
    page.go_back()
    expect(entry(page, "a.txt")).to_be_visible()
    held: list[Route] = []

    def hold_first_file(route: Route) -> None:
        metadata = route.request.headers.get("upload-metadata", "")
        if not held and b64encode(b"a.txt").decode() in metadata.replace(",", " ").split():
            held.append(route)
        else:
            route.continue_()

    page.route("**/uploads/", hold_first_file)
    page.locator("#pick-files").set_input_files([tmp_path / "a.txt", tmp_path / "b.txt"])
    question = page.get_by_role("alertdialog")
    expect(question).to_contain_text("b.txt exists already")
    held[0].continue_()
    expect(page.locator("#uploads li[data-state=conflict]")).to_have_count(2)
    expect(question).to_contain_text("b.txt exists already")  # no other question below the pointer
    question.get_by_role("button", name="Keep both").click()
    expect(question).to_contain_text("a.txt exists already")
    question.get_by_label("The same for all further").check()
    question.get_by_role("button", name="Replace").click()
    expect(page.locator("#uploads")).to_contain_text("2 files uploaded")
    expect(page.locator("[data-entries] tbody tr")).to_have_count(4)
    assert (files / "a.txt").read_text() == "new a.txt"
    assert (files / "b.txt").read_text() == "old b"


def test_what_is_chosen_is_downloaded(page: Page, folder: Folder, files: Path, tmp_path: Path) -> None:
    (files / "data").mkdir()
    for name in ("data/1", "a & b.txt", "c.txt"):
        (files / name).write_text(name)
    page.goto(f"/folders/{folder.pk}/")
    chosen = page.locator("#download-chosen")
    page.get_by_role("checkbox", name="Choose a & b.txt").check()
    with page.expect_download() as single:
        chosen.click()
    assert (single.value.suggested_filename, Path(single.value.path()).read_text()) == ("a & b.txt", "a & b.txt")
    page.get_by_role("checkbox", name="Choose data").check()
    with page.expect_download() as archive:
        chosen.click()
    with ZipFile(archive.value.path()) as made:
        names = sorted(name for name in made.namelist() if not name.endswith("/"))
    assert [name.split("mnist/")[-1] for name in names] == ["a & b.txt", "data/1"]


def test_a_text_that_changed_meanwhile_is_not_overwritten(page: Page, folder: Folder, files: Path) -> None:
    (files / "notes.md").write_text("one")
    page.goto(f"/folders/{folder.pk}/")
    entry(page, "notes.md").click()
    page.get_by_role("link", name="Edit").click()
    text = page.get_by_role("textbox", name="Text of notes.md")
    text.fill("two")
    page.get_by_role("link", name="Close").click()
    page.get_by_role("dialog", name="Leave without saving what you typed?").get_by_role(
        "button", name="Go back"
    ).click()
    expect(text).to_have_value("two")
    text.press("Control+s")
    expect(page.get_by_text("Saved at")).to_be_visible()
    assert (files / "notes.md").read_text() == "two"
    (files / "notes.md").write_text("of a session")
    text.fill("three")
    text.press("Control+s")
    expect(page.get_by_text("has changed since you opened it")).to_be_visible()
    assert (files / "notes.md").read_text() == "of a session"
    page.get_by_role("button", name="Save mine over it").click()
    expect(page.get_by_text("Saved at")).to_be_visible()
    assert (files / "notes.md").read_text() == "three"
    page.get_by_role("link", name="Close").click()
    expect(page.locator(".preview-text")).to_have_text("three")


def test_a_share_is_seen_by_the_other_user(
    page: Page, browser: Browser, server: LiveServer, folder: Folder, files: Path
) -> None:
    (files / "results.csv").write_text("loss\n0.1")
    friend = make_user(email="bob@example.org")
    page.goto("/folders/")
    page.get_by_role("button", name="Share mnist").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("E-mail address").fill("bob@example.com")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("Nobody signs in here")
    dialog.get_by_label("E-mail address").fill("bob@example.org")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("may read")
    expect(page.locator(f"#folder-{folder.pk}")).to_contain_text("shared with 1")
    with signed_in(browser, server, friend) as other:
        allow_errors(other, "status of 404 .*results.csv")
        theirs = other.new_page()
        theirs.goto("/folders/?tab=shared")
        theirs.get_by_role("link", name="mnist", exact=True).click()
        expect(theirs.get_by_text("read only")).to_be_visible()
        expect(theirs.get_by_role("button", name="Upload")).to_be_hidden()
        entry(theirs, "results.csv").click()
        expect(theirs.locator(".preview-text")).to_contain_text("loss")
        expect(theirs.get_by_role("link", name="Edit")).to_be_hidden()
        dialog.get_by_role("button", name="Let write: bob@example.org").click()
        expect(dialog).to_contain_text("may read and write")
        theirs.reload()
        expect(theirs.get_by_role("link", name="Edit")).to_be_visible()
        dialog.get_by_role("button", name="Withdraw from bob@example.org").click()
        expect(dialog).to_contain_text("Nobody but you")
        theirs.reload()
        expect(theirs.get_by_role("heading", name="mnist")).to_be_hidden()


def test_everything_works_by_keyboard(page: Page, root: StorageRoot, owner: User) -> None:
    page.goto("/folders/")
    page.locator("#create-folder").focus()
    page.keyboard.press("Enter")
    name = page.get_by_role("dialog").get_by_role("textbox", name="Name")
    expect(name).to_be_focused()
    page.keyboard.type(".local")
    expect(page.get_by_role("dialog")).to_contain_text("In every session")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=".local")).to_be_visible()
    files = Path(storage.root_directory(root).files_path(owner.pk, Folder.objects.get().pk))
    for each in ("bin", "lib"):
        (files / each).mkdir()
    for each in ("a.txt", "b.txt", "c.txt"):
        (files / each).write_text(each)
    page.reload()
    entry(page, "bin").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("This directory is empty")).to_be_visible()
    page.keyboard.press("Alt+ArrowUp")
    expect(entry(page, "bin")).to_be_focused()
    page.keyboard.press("End")
    expect(entry(page, "c.txt")).to_be_focused()
    page.keyboard.press("F2")
    expect(name).to_be_focused()
    page.keyboard.type("renamed")  # what is before the ending is selected
    page.keyboard.press("Enter")
    expect(entry(page, "renamed.txt")).to_be_visible()
    page.wait_for_load_state()  # of the page that shows it, whose scripts handle the keys
    entry(page, "a.txt").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.locator("[data-ticked-bar]")).to_contain_text("2 chosen")
    page.keyboard.press("Delete")
    expect(page.locator("#toasts")).to_contain_text("2 entries moved to the trash.")
    expect(entry(page, "a.txt")).to_be_hidden()
    assert sorted(each.name for each in files.iterdir()) == ["bin", "lib", "renamed.txt"]


def test_deleted_files_are_restored_by_keyboard(page: Page, owner: User, folder: Folder, files: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (files / name).write_text(name)
        contents.trash_entry(owner, folder, name)
    page.goto(f"/folders/{folder.pk}/trash/")
    page.locator("[data-entry]").first.focus()
    page.keyboard.press("Control+a")
    expect(page.locator("[data-ticked-bar]")).to_contain_text("2 chosen")
    page.get_by_role("button", name="Restore").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("2 entries restored.")
    expect(page.get_by_text("Nothing was deleted here")).to_be_visible()
    assert (files / "a.txt").read_text() == "a.txt"
