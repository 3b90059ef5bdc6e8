"""The toast after a session has been ended in the dialog, or when the platform cannot be reached."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import allow_errors, hold_time, signed_in
from tests.factories import make_session, make_user
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_ending_a_session_shows_a_toast_that_can_be_dismissed(browser: Browser, server: LiveServer) -> None:
    session = make_session(owner=make_user())
    with signed_in(browser, server, session.owner) as context:
        page = context.new_page()
        page.clock.install()
        page.goto("/sessions/")
        hold_time(page)  # the toast stays, and all is wired without a pause
        page.locator(f"a[href='/sessions/{session.pk}/terminate/']").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
        toast = page.locator("#toasts .toast.toast-success")
        expect(toast).to_contain_text(f"{session.name} ends in 5 seconds.")
        toast.get_by_role("button", name="Undo").click()
        expect(toast).to_contain_text(f"{session.name} goes on.")
        toast.get_by_role("button", name="Dismiss").click()
        page.clock.run_for(1000)  # it fades
        expect(toast).to_be_hidden()


def test_an_unreachable_platform_shows_a_toast(browser: Browser, server: LiveServer) -> None:
    session = make_session(owner=make_user())
    with signed_in(browser, server, session.owner) as context:
        page = context.new_page()
        allow_errors(context, "htmx:sendError|net::ERR_FAILED")
        page.goto("/sessions/")
        page.route("**/terminate/**", lambda route: route.abort())
        page.locator(f"a[href='/sessions/{session.pk}/terminate/']").first.click()
        expect(page.locator("#toasts .toast.toast-danger")).to_contain_text("The platform cannot be reached.")
