"""SSH in a real browser: adding a key, and copying the command from the session's page."""

from collections.abc import Iterator

import asyncssh
import pytest
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from tests.browser import hold_time, signed_in
from tests.factories import make_user, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def owner() -> User:
    """A user without privileges."""
    return make_user()


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User) -> Iterator[Page]:
    """A tab in which the owner is signed in and may use the clipboard; it must log no error."""
    with signed_in(browser, server, owner, permissions=["clipboard-read", "clipboard-write"]) as context:
        yield context.new_page()


def test_a_button_copies_the_ssh_command(page: Page, server: LiveServer, owner: User) -> None:
    session = run_session(owner=owner)
    page.clock.install()
    page.goto(f"{server.url}/sessions/{session.pk}/")
    button = page.locator(".copied-line [data-copy]")
    hold_time(page)
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"ssh -p 8022 {session.pk}@127.0.0.1"
    page.clock.run_for(2000)
    expect(button).to_have_text("Copy")


def test_a_key_is_added_and_deleted(page: Page, server: LiveServer, owner: User) -> None:
    page.goto(f"{server.url}/sessions/")
    page.get_by_role("button", name="Account menu").click()
    page.get_by_role("link", name="Account", exact=True).click()
    page.get_by_role("link", name="SSH keys").click()
    page.get_by_label("Public key").fill("ssh-ed25519 nonsense")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".field-error")).to_contain_text("This is not a public key")
    key = asyncssh.generate_private_key("ssh-ed25519", comment="ada@laptop")
    page.get_by_label("Public key").fill(key.export_public_key().decode())
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".row-list")).to_contain_text("ada@laptop")
    assert owner.ssh_keys.get().fingerprint == key.get_fingerprint()
    page.get_by_role("button", name="Delete the key ada@laptop").click()
    expect(page.locator(".row-list")).to_contain_text("You have added no key yet")
