"""The palette, by keyboard alone."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import signed_in
from tests.factories import make_session, make_user
from tests.live import LiveServer

SETTLED = """() => document.body.dispatchEvent(new CustomEvent("htmx:afterSettle", {
    bubbles: true, detail: { target: document.getElementById("content") } }))"""
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_the_palette_leads_by_keyboard_to_pages_and_sessions(browser: Browser, server: LiveServer) -> None:
    session = make_session(owner=make_user(), name="train-large")
    with signed_in(browser, server, session.owner) as context:
        page = context.new_page()
        page.goto("/")
        page.keyboard.press("Control+k")
        field = page.get_by_role("combobox", name="Go to a page")
        expect(field).to_be_focused()
        selected = page.locator("[role=option][aria-selected=true]")
        field.fill("tok")
        expect(selected).to_have_text("API tokens")
        field.fill("train")
        expect(selected).to_contain_text("train-large")
        expect(field).to_have_attribute("aria-activedescendant", selected.get_attribute("id") or "none")
        field.press("ArrowDown")
        page.evaluate(SETTLED)  # another part of the page, which must not move what Enter follows
        expect(selected).to_contain_text("Output")
        field.press("ArrowUp")
        field.press("Enter")
        page.wait_for_url(f"**/sessions/{session.pk}/")
        page.keyboard.press("Control+k")
        field.fill("no such thing")
        expect(page.get_by_text("Nothing has this name.")).to_be_visible()
        field.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
