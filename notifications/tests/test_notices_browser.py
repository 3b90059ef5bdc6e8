"""The bell, toasts and browser notifications in a real browser: each notification once, however many pages are open."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from accounts.models import User
from notifications.models import Announcement, Notification
from sessions.lifecycle import Reason, Status
from tests.browser import signed_in
from tests.factories import make_user, run_session
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def context(browser: Browser, server: LiveServer, owner: User) -> Iterator[BrowserContext]:
    with signed_in(browser, server, owner) as running:
        yield running


def test_a_fault_is_shown_once_and_then_listed(context: BrowserContext, owner: User) -> None:
    session = run_session(owner=owner)
    page = context.new_page()
    page.goto("/sessions/")
    expect(page.locator("#bell-count")).to_have_text("1")  # its start
    session.move_to(Status.ERROR, Reason.HOST_LOST)
    toast = page.locator(".toast-notice")
    expect(toast).to_contain_text(f"{session.name} has failed")
    expect(page.locator("#bell-count")).to_have_text("2")
    until(lambda: not Notification.objects.filter(shown_at=None).exists())
    page.reload()
    bell = page.get_by_role("button", name="Notifications, 2 new")
    expect(bell).to_be_visible()
    assert toast.count() == 0
    bell.click()
    expect(page.locator("#bell-panel .notice.is-unread")).to_have_count(2)
    expect(page.locator("#bell-count")).to_be_hidden()
    page.locator("#bell-panel .notice").first.click()
    page.wait_for_url(f"**/sessions/{session.pk}/")
    assert not Notification.objects.filter(read_at=None).exists()


def test_an_announcement_appears_and_is_dismissed_without_reload(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/notifications/")
    page.evaluate("() => { window.isSame = true; }")
    expect(page.locator("html")).to_have_attribute("data-connection", "live")
    Announcement.objects.create(text="Maintenance at noon", level=2)
    note = page.get_by_role("note").filter(has_text="Maintenance at noon")
    expect(note).to_be_visible()
    note.get_by_role("button", name="Dismiss").click()
    expect(note).to_have_count(0)
    Announcement.objects.bulk_create([Announcement(text="Over at two")])  # while nobody could be told
    page.evaluate("() => document.dispatchEvent(new Event('live:open'))")  # connected again
    expect(page.get_by_role("note").filter(has_text="Over at two")).to_be_visible()
    assert page.evaluate("() => window.isSame")


def test_ways_are_chosen_by_keyboard(context: BrowserContext, owner: User) -> None:
    page = context.new_page()
    page.goto("/notifications/preferences/")
    box = page.get_by_role("checkbox", name="A session fails By e-mail")
    box.focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Your choice is saved.")).to_be_visible()
    expect(box).to_be_checked()
    assert owner.notification_preferences.get(kind="FAILED").by_email
