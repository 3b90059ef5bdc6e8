"""What a person does in the launch wizard."""

from playwright.sync_api import Page


def open_step(page: Page, title: str) -> None:
    """Go to one of the wizard's pages by its title in the row of pages."""
    page.get_by_role("navigation", name="Pages of the launch").get_by_role("link", name=title).click()


def choose_environment(page: Page, name: str, version: str = "") -> None:
    """Choose the card of an environment, and a version of it."""
    card = page.locator(f"[data-environment='{name}']")
    card.get_by_role("radio").check(force=True)  # drawn as the card around it
    if version:
        card.get_by_label("Version").select_option(version)


def launch_without_folder(page: Page) -> None:
    """Launch from whatever page of the wizard, by way of the last one, and confirm that no folder is mounted."""
    button = page.locator("#launch-button")
    if page.locator("#launch:not([data-step=review])").is_visible():
        button.click()
        page.wait_for_url("**/launch/review/")
    button.click()
    question = page.get_by_role("dialog", name="No data folder is mounted")
    question.get_by_role("button", name="Launch").click()
