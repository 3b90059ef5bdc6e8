"""A real browser for tests: Debian's headless Chromium, driven by Playwright."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from accounts.models import User
from tests.live import LiveServer, login_cookie
from tests.wait import SECONDS

STEADY_CHROMIUM: Final = Path(__file__).with_name("steady_chromium.py")
SLOW_MS: Final = 3 * SECONDS * 1000  # Jupyter's first start, too

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium until the block ends."""
    with sync_playwright() as playwright:
        expect.set_options(timeout=SLOW_MS)
        browser = playwright.chromium.launch(executable_path=STEADY_CHROMIUM, args=FLAGS, timeout=SLOW_MS)
        yield browser
        browser.close()


def hold_time(page: Page) -> None:
    """Let no timer of the page run out, so that what it shows for a moment stays; needs `page.clock.install()`."""
    page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))


@contextmanager
def signed_in(browser: Browser, server: LiveServer, user: User, **options: Any) -> Iterator[BrowserContext]:
    """Give the user a profile of their own in which they are signed in; no page of it may end in an error.

    `options` are those of Playwright's `new_context`.
    """
    context = browser.new_context(base_url=server.url, **options)
    context.add_cookies([login_cookie(user, server.url)])  # type: ignore[list-item]
    context.set_default_timeout(SLOW_MS)
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    yield context
    context.close()
    assert errors == []
