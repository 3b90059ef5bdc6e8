"""What somebody does on a page, counted: how much work their day takes."""

from playwright.sync_api import Locator, Page


class Steps:
    """Clicks, choices and fields of one page, counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def click(self, target: Locator) -> None:
        self.count += 1
        target.click()

    def link(self, name: str, within: str = "main") -> None:
        self.click(self.page.locator(within).get_by_role("link", name=name, exact=True))

    def go(self, name: str) -> None:
        self.link(name, "nav.site-menu")

    def save(self) -> None:
        self.click(self.page.get_by_role("button", name="Save", exact=True))

    def fill(self, label: str, text: str) -> None:
        self.count += 1
        self.page.get_by_label(label, exact=True).fill(text)

    def choose(self, label: str, option: str) -> None:
        self.count += 1
        self.page.get_by_label(label, exact=True).select_option(label=option)
