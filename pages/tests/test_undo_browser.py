"""Undoing the end of a session: by keyboard, after a reload, and in another window."""

import pytest
from playwright.sync_api import Browser, expect

from sessions.ending import services as ending
from sessions.models import RequestedEnd
from tests.browser import hold_time, signed_in
from tests.factories import make_session, make_user
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_an_end_is_undone_by_keyboard(browser: Browser, server: LiveServer) -> None:
    session = make_session(owner=make_user())
    with signed_in(browser, server, session.owner) as context:
        page, other = context.new_page(), context.new_page()
        page.goto("/sessions/")
        other.goto("/sessions/")
        page.bring_to_front()
        icon = page.locator(f"#end-{session.pk}")
        icon.press("Enter")
        page.get_by_role("dialog").get_by_role("button", name="Terminate").press("Enter")
        toast = page.locator("#toasts[role=status] .toast")
        expect(toast).to_contain_text(f"{session.name} ends in 5 seconds.")
        expect(icon).to_be_focused()
        icon.press("z")
        expect(toast).to_contain_text(f"{session.name} goes on.")
        expect(icon).to_be_focused()
        assert not RequestedEnd.objects.exists()

        icon.press("Enter")
        page.get_by_role("dialog").get_by_role("button", name="Terminate").press("Enter")
        expect(toast).to_contain_text(f"{session.name} ends in 5 seconds.")
        page.reload()
        expect(page.get_by_text("Ends in a few seconds.")).to_be_visible()
        other.bring_to_front()
        other.get_by_role("button", name=f"Undo: {session.name} goes on").press("Enter")
        expect(other.locator("#toasts .toast")).to_contain_text(f"{session.name} goes on.")
        page.bring_to_front()
        expect(page.get_by_text("Ends in a few seconds.")).to_be_hidden()
        page.goto(f"/sessions/{session.pk}/")
        page.locator(f"#end-{session.pk}").click()
        page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
        expect(page.get_by_text("Ends in a few seconds.")).to_be_visible()
        page.get_by_role("button", name=f"Undo: {session.name} goes on").click()
        expect(page.get_by_text("Ends in a few seconds.")).to_be_hidden()
        assert not RequestedEnd.objects.exists()


def test_the_key_undoes_what_was_done_last(browser: Browser, server: LiveServer) -> None:
    last = make_session(owner=make_user())
    first = make_session(owner=last.owner)  # whose row is above
    ending.request_end(first, actor=first.owner)
    with signed_in(browser, server, last.owner) as context:
        page = context.new_page()
        page.clock.install()
        page.goto("/sessions/")
        hold_time(page)  # the message stays
        page.locator(f"#end-{last.pk}").click()
        page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
        toast = page.locator("#toasts .toast")
        expect(toast).to_contain_text(f"{last.name} ends in 5 seconds.")
        expect(page.locator("#dialog")).to_be_hidden()
        page.keyboard.press("z")
        expect(toast).to_contain_text(" goes on.")
        assert [*RequestedEnd.objects.values_list("session", flat=True)] == [first.pk]
