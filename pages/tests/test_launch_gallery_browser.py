"""Launch templates in a real browser: found and filled in by keys on a small dark screen, and saved by one click."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from accounts.models import User
from sessions.models import Session
from specs.models import LaunchTemplate
from specs.tests.template_rows import make_template
from specs.tests.worlds import make_owner
from tests.browser import signed_in
from tests.factories import run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def owner(transactional_db: None, tmp_path: Path) -> User:
    return make_owner(tmp_path)


def test_a_template_is_found_filled_in_and_launched(browser: Browser, server: LiveServer, owner: User) -> None:
    make_template(owner, name="train", description="Our run")
    make_template(owner, name="serve")
    with signed_in(browser, server, owner, viewport={"width": 390, "height": 900}, color_scheme="dark") as context:
        page = context.new_page()
        page.goto("/sessions/launch/")
        page.get_by_role("searchbox", name="Search templates").fill("our")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="serve")).to_have_count(0)
        page.get_by_role("link", name="train").press("Enter")
        page.get_by_label("lr").fill("high")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("A valid number is required.")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_label("lr").fill("0.5")
        page.get_by_role("button", name="Open in the wizard").press("Enter")
        expect(page.locator("#review")).to_contain_text("python train.py --lr 0.5")
        expect(page.get_by_role("searchbox", name="Search templates")).to_be_hidden()
        page.locator("#review").get_by_role("button", name="Save as template").press("Enter")
        expect(page.get_by_label("What is launched")).to_have_value(re.compile("command: python train.py --lr 0.5"))


def test_a_session_is_saved_by_one_click(browser: Browser, server: LiveServer, owner: User) -> None:
    session = run_session(owner=owner, environment={"SEED": "7"})
    with signed_in(browser, server, owner) as context:
        page = context.new_page()
        page.goto(f"/sessions/{session.pk}/")
        page.get_by_role("link", name="Save as template").click()
        page.get_by_role("textbox", name="Name").fill("mine")
        page.get_by_label("flask").check()
        page.get_by_label("env.SEED").check()
        page.get_by_role("button", name="Make these parameters").click()
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_role("heading", name="mine")).to_be_visible()
        expect(page.get_by_label("seed")).to_have_value("7")
        assert LaunchTemplate.objects.get().icon == "flask"
        assert Session.objects.count() == 1
