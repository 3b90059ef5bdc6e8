"""What a person does on the pages in the README's tour, in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect

from tests.browser import watched_context
from tests.platform import Platform
from tests.wizard import launch_without_folder, open_step

USER = "user@example.org"
DEVELOPER = "developer@example.org"


@contextmanager
def sessions_page(browser: Browser, platform: Platform, email: str = USER) -> Iterator[Page]:
    """Sign a user of the demo in and give their sessions page; every error of the page fails the test."""
    with watched_context(browser, platform.url, viewport={"width": 1440, "height": 900}) as context:
        page = context.new_page()
        page.goto(platform.url)
        page.get_by_label("E-mail").fill(email)
        page.get_by_label("Password", exact=True).fill(platform.passwords[email])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Summary", exact=True)).to_be_visible()
        page.get_by_role("navigation", name="Main").get_by_role("link", name="Sessions").click()
        expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
        yield page


def launch(page: Page, *, name: str, preset: str, count: int = 1, has_folder: bool = False) -> None:
    """Launch sessions, and put the launcher away that opens by itself when the first of them runs.

    With `has_folder`, of a user one of whose data folders is mounted always.
    """
    page.get_by_role("link", name="START").first.click()
    page.wait_for_url("**/sessions/launch/**")  # loaded, with the scripts that ask about folders
    page.get_by_label("Session name").fill(name)
    open_step(page, "Resources")
    page.locator(".preset", has_text=preset).click()
    page.locator("input[name=count]").fill(str(count))
    if has_folder:
        page.locator("#launch-button").click()
    else:
        launch_without_folder(page)
    expect(page.get_by_role("dialog")).to_contain_text(f"Apps of {name}")
    page.keyboard.press("Escape")


def terminal_of(page: Page, name: str) -> Page:
    """Open the terminal of a running session, and return it once it has a prompt."""
    with page.context.expect_page() as opening:
        page.locator("tr", has_text=name).get_by_role("link", name="Terminal").click()
    expect(opening.value.locator(".xterm-rows")).to_contain_text("$")
    return opening.value


def end(page: Page, name: str) -> None:
    """End a session in the list."""
    row = page.locator("tr", has=page.locator(".session-name", has_text=name))  # one that waits names others
    expect(row).to_be_visible()
    row.get_by_role("link", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
