"""A real browser for tests: Debian's headless Chromium, driven by Playwright."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, WebError, expect, sync_playwright

from accounts.models import User
from tests.live import LiveServer, login_cookie
from tests.wait import SECONDS

STEADY_CHROMIUM: Final = Path(__file__).with_name("steady_chromium.py")
SLOW_MS: Final = SECONDS * 1000  # Jupyter's first start, too
REFUSED_INPUT: Final = re.compile(r"status of (409|412|422) ")  # an answer to a form, which the page shows

_allowed: Final[dict[BrowserContext, list[re.Pattern[str]]]] = {}

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
def watched_context(browser: Browser, url: str, **options: Any) -> Iterator[BrowserContext]:
    """Give a profile in which no page of the platform at `url` may log an error, or raise one.

    What `allow_errors` names is let through. `options` are those of Playwright's `new_context`.
    """
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        source = message.location["url"]
        if message.type == "error" and is_ours(source):
            errors.append(f"{message.text} ({source})")

    def note_exception(error: WebError) -> None:
        if error.page and is_ours(error.page.url):
            errors.append(str(error.error))

    def is_ours(address: str) -> bool:
        return urlsplit(address).hostname == urlsplit(url).hostname

    context = browser.new_context(**{"base_url": url} | options)
    context.set_default_timeout(SLOW_MS)
    context.on("weberror", note_exception)
    context.on("console", note)
    allowed = _allowed[context] = [REFUSED_INPUT]
    yield context
    context.close()
    del _allowed[context]
    found = [error for error in errors if not any(pattern.search(error) for pattern in allowed)]
    assert found == [], "\n".join(found)


def allow_errors(context: BrowserContext, pattern: str) -> None:
    """Let pages log errors that this regular expression finds: those that the test provokes."""
    _allowed[context].append(re.compile(pattern))


@contextmanager
def signed_in(browser: Browser, server: LiveServer, user: User, **options: Any) -> Iterator[BrowserContext]:
    """Give the user a watched profile of their own in which they are signed in."""
    with watched_context(browser, server.url, **options) as context:
        context.add_cookies([login_cookie(user, server.url)])  # type: ignore[list-item]
        yield context
