"""SSH in a real browser: adding a key, and copying the command from the session's page."""

from collections.abc import Iterator

import asyncssh
import pytest
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from tests.browser import chromium
from tests.factories import make_user, run_session
from tests.live import LiveServer, login_cookie, serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

SLOW_MS = 30_000  # longer than anything takes on a busy machine


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The platform on the test's database."""
    with serving(tmp_path_factory.mktemp("live") / "server.log") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser; each test gets a profile of its own."""
    with pytest.MonkeyPatch.context() as patch, chromium() as running:
        # Playwright keeps an event loop in this thread, where Django then expects no queries.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield running


@pytest.fixture
def owner() -> User:
    """A user without privileges."""
    return make_user()


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User) -> Iterator[Page]:
    """A tab in which the owner is signed in and may use the clipboard; it must log no error."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    context.add_cookies([login_cookie(owner, server.url)])  # type: ignore[list-item]
    opened = context.new_page()
    opened.set_default_timeout(SLOW_MS)
    expect.set_options(timeout=SLOW_MS)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert not errors


def test_the_ssh_command_is_copied_by_a_button_that_says_so(page: Page, server: LiveServer, owner: User) -> None:
    session = run_session(owner=owner)
    page.goto(f"{server.url}/sessions/{session.pk}/")
    button = page.locator("[data-copy]")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"ssh -p 8022 {session.pk}@127.0.0.1"
    expect(button).to_have_text("Copy")


def test_a_key_is_added_from_the_account_menu_and_deleted_again(page: Page, server: LiveServer, owner: User) -> None:
    page.goto(f"{server.url}/sessions/")
    page.get_by_role("button", name="Account menu").click()
    page.get_by_role("link", name="SSH keys").click()
    page.get_by_label("Public key").fill("ssh-ed25519 nonsense")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".field-error")).to_contain_text("This is no public key")
    key = asyncssh.generate_private_key("ssh-ed25519", comment="ada@laptop")
    page.get_by_label("Public key").fill(key.export_public_key().decode())
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".key-list")).to_contain_text("ada@laptop")
    assert owner.ssh_keys.get().fingerprint == key.get_fingerprint()
    page.get_by_role("button", name="Delete the key ada@laptop").click()
    expect(page.locator(".key-list")).to_contain_text("You have added no key yet")
