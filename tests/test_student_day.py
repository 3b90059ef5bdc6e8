"""A student's day on the whole platform, in few steps: from the sign-in to a file that is found again in a folder."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser import watched_context
from tests.guide import USER
from tests.platform import Platform

pytestmark = [pytest.mark.docker, pytest.mark.browser]

ANY_NUMBER = re.compile(r"\d+")
MOST_STEPS = 22  # keys that act, texts that are typed, clicks


class Student:
    """Uses pages and counts the steps."""

    def __init__(self) -> None:
        self.steps = 0

    def press(self, control: Locator) -> None:
        """Press Enter on a control, which the keyboard has reached."""
        self.steps += 1
        control.press("Enter")

    def enter(self, field: Locator, text: str) -> None:
        """Write a text into a field in place of what it holds."""
        self.steps += 1
        field.fill(text)

    def type_line(self, page: Page, text: str) -> None:
        """Type a line where the page has the focus, with Enter."""
        self.steps += 2
        page.keyboard.type(f"{text}\n")

    def opened_by(self, control: Locator) -> Page:
        """Return the window that a control opens."""
        with control.page.context.expect_page() as opening:
            self.press(control)
        return opening.value


@pytest.fixture
def context(browser: Browser, platform: Platform) -> Iterator[BrowserContext]:
    with watched_context(browser, platform.url, viewport={"width": 1440, "height": 900}) as opened:
        yield opened


def test_a_student_works_in_a_new_folder(context: BrowserContext, platform: Platform) -> None:
    student, page = Student(), context.new_page()
    menu, dialog = page.get_by_role("navigation", name="Main"), page.get_by_role("dialog")
    page.goto(platform.url)
    student.enter(page.get_by_label("E-mail"), USER)
    student.enter(page.get_by_label("Password", exact=True), platform.passwords[USER])
    student.press(page.get_by_label("Password", exact=True))

    student.press(menu.get_by_role("link", name="Launch"))
    student.press(page.get_by_role("link", name="Next: Data folders"))
    student.press(page.get_by_role("link", name="New folder"))
    student.enter(dialog.get_by_label("Name"), "thesis")
    student.press(dialog.get_by_label("Name"))
    expect(page.get_by_role("checkbox", name="thesis")).to_be_checked()
    expect(page.locator("#advice")).to_contain_text("Starts now")
    student.press(page.get_by_role("button", name="Confirm and launch"))
    row = page.locator("tr[data-status=RUNNING]")
    expect(row).to_be_visible()

    terminal = student.opened_by(dialog.get_by_role("link", name="Terminal"))  # the launcher has opened by itself
    expect(terminal.locator(".xterm-rows")).to_contain_text("$")
    student.type_line(terminal, "echo forty-two > thesis/answer.txt && echo wr''itten")
    expect(terminal.locator(".xterm-rows")).to_contain_text("written")
    student.steps += 1  # closes the window
    terminal.close()

    student.press(row.locator(".session-name"))
    student.press(page.get_by_role("link", name="Resize"))
    expect(dialog).to_contain_text("Free now:")
    expect(dialog.locator("[data-amount=memory] [data-slider]")).to_have_attribute("max", ANY_NUMBER)  # by its script
    student.enter(dialog.get_by_label("RAM", exact=True), "1.5 GiB")
    student.press(dialog.get_by_label("RAM", exact=True))
    expect(page.get_by_text(re.compile(r"It has .*1\.5 GiB of memory.* now\."))).to_be_visible()
    student.press(page.get_by_role("link", name="Terminate"))
    student.press(dialog.get_by_role("button", name="Terminate"))
    expect(page.locator("[data-final]")).to_be_visible()

    student.press(menu.get_by_role("link", name="Data folders"))
    student.press(page.get_by_role("link", name="thesis", exact=True))
    student.press(page.get_by_role("link", name="answer.txt", exact=True))
    expect(page.get_by_text("forty-two")).to_be_visible()
    assert student.steps <= MOST_STEPS
