"""The folders of the launch page, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from folders.models import FolderShare
from sessions.models import Session
from tests.browser import signed_in
from tests.factories import make_folder, make_host, make_image, make_root, make_user
from tests.live import LiveServer
from tests.wizard import open_step

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def owner(tmp_path: Path) -> User:
    """A user with two folders, one that is always mounted, and one of somebody else's."""
    owner, root = make_user(), make_root(make_host(), path=str(tmp_path))
    make_image()
    for name in ("data", "models", ".local"):
        make_folder(owner, root=root, name=name)
    theirs = make_folder(make_user(email="anna@example.org"), root=root, name="corpus")
    FolderShare.objects.create(folder=theirs, user=owner)
    return owner


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User) -> Iterator[Page]:
    with signed_in(browser, server, owner, viewport={"width": 390, "height": 900}) as context:
        yield context.new_page()


def test_folders_are_chosen_and_warned_about(page: Page) -> None:
    page.goto("/sessions/launch/review/")
    said = page.locator("#review-folders")
    expect(said).to_contain_text("No other folder is mounted. What the session writes elsewhere is lost when it ends.")
    expect(said).to_contain_text(".local /home/work/.local always mounted")
    page.get_by_role("link", name="Change the data folders").click()
    page.get_by_role("checkbox", name="data").check()
    page.get_by_label("Path of data in the session").fill("/home/work/.local/x")
    row = page.locator("[data-folder=data]")
    row.get_by_label("Read-only").check()
    page.get_by_role("checkbox", name="corpus").check()
    expect(page.locator("[data-folder=corpus]").get_by_label("Read-only")).to_be_disabled()
    expect(row).to_contain_text("is taken by your folder .local")
    page.go_back()
    expect(said).to_contain_text("data /home/work/.local/x read-only")
    expect(said).to_contain_text("corpus /home/work/corpus read-only")
    open_step(page, "Environment")
    page.get_by_label("Session name").fill("no good name")
    page.locator("#launch-button").click()

    expect(page.locator("#error-name")).to_be_visible()  # all at once, and nothing typed is lost
    expect(page.locator("#launch-errors")).to_contain_text("is taken by your folder .local")
    page.get_by_label("Session name").fill("good-name")
    open_step(page, "Data folders")
    expect(page.get_by_role("checkbox", name="corpus")).to_be_checked()
    expect(row.get_by_label("Read-only")).to_be_checked()
    page.get_by_label("Path of data in the session").fill("sets")
    expect(page.locator("#advice")).to_contain_text("Starts now")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#launch-button").click()
    page.get_by_role("link", name="good-name", exact=True).click()
    folders = page.locator("dd", has_text="/home/work/sets")
    expect(folders).to_contain_text("/home/work/corpus read-only")
    expect(folders).to_contain_text("/home/work/.local read-write, always mounted")
    expect(folders).to_contain_text("data, read-only")


def test_a_folder_is_made_where_it_is_chosen(page: Page, owner: User) -> None:
    owner.folders.exclude(name="data").delete()
    owner.folders.update(name="old")
    page.goto("/sessions/launch/")
    page.get_by_label("Session name").fill("keeps-this")
    open_step(page, "Data folders")
    page.get_by_role("link", name="New folder").press("Enter")
    dialog = page.get_by_role("dialog", name="New folder")
    dialog.get_by_label("Name").fill("a b")
    dialog.get_by_label("Name").press("Enter")
    expect(dialog.locator("#name-note")).to_contain_text("letters")
    dialog.get_by_label("Name").fill("thesis")
    dialog.get_by_label("Name").press("Enter")
    expect(page.get_by_role("checkbox", name="thesis")).to_be_checked()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("checkbox", name="old")).not_to_be_checked()
    expect(page.get_by_role("link", name="New folder")).to_be_focused()
    expect(page.locator("#advice")).to_contain_text("Starts now")
    page.reload()
    expect(page.get_by_role("checkbox", name="thesis")).to_be_checked()
    page.locator("#launch-button").click()
    expect(page.get_by_text("Launched keeps-this")).to_be_visible()
    assert [mount.folder_name for mount in Session.objects.get().mounts.all()] == ["thesis"]


def test_a_link_begins_with_its_folder(page: Page, owner: User) -> None:
    page.goto(f"/sessions/launch/?folder={owner.folders.get(name='models').pk}")
    open_step(page, "Data folders")
    expect(page.get_by_role("checkbox", name="models")).to_be_checked()
    page.locator("#launch-button").click()
    expect(page.get_by_text("Launched")).to_be_visible()
    assert [mount.folder_name for mount in Session.objects.get().mounts.all()] == [".local", "models"]
