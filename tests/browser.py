"""A real browser for tests: Debian's headless Chromium, driven by Playwright."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect, sync_playwright

from accounts.models import User
from tests.live import LiveServer, login_cookie
from tests.wait import SECONDS

STEADY_CHROMIUM: Final = Path(__file__).with_name("steady_chromium.py")
SLOW_MS: Final = SECONDS * 1000  # Jupyter's first start, too
REFUSED: Final = "Content Security Policy"  # in what Chromium says when a page breaks its own policy

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


def note_refusals(context: BrowserContext, url: str, errors: list[str]) -> None:
    """Add to `errors` what the Content-Security-Policy of the platform at `url` refuses its own pages."""

    def note(message: ConsoleMessage) -> None:
        if REFUSED in message.text and message.page and message.page.url.startswith(url):
            errors.append(message.text)

    context.on("console", note)


def wait_longer_for_answers(context: BrowserContext) -> None:
    """Have pages wait ten times as long for an answer before they take their connection for silent and refuse input."""

    def rewrite(route: Route) -> None:
        response = route.fetch()
        times = r"^const (?:SILENT_MS|DEAD_MS|RESUMED_MS) = \d+"
        text, count = re.subn(times, r"\g<0>0", response.text(), flags=re.MULTILINE)
        if count == 3:
            route.fulfill(response=response, body=text)
        else:
            route.abort()  # so that no page works whose script has other names

    context.route(re.compile(r"/heartbeat(\.\w+)?\.js$"), rewrite)


@contextmanager
def signed_in(browser: Browser, server: LiveServer, user: User, **options: Any) -> Iterator[BrowserContext]:
    """Give the user a profile of their own in which they are signed in.

    No page of it may end in an error or break the platform's Content-Security-Policy.
    `options` are those of Playwright's `new_context`.
    """
    context = browser.new_context(base_url=server.url, **options)
    context.add_cookies([login_cookie(user, server.url)])  # type: ignore[list-item]
    context.set_default_timeout(SLOW_MS)
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    note_refusals(context, server.url, errors)
    yield context
    context.close()
    assert errors == [], errors
