"""The page of a project in a real browser: its manager sees what members start, end and leave, without reloading."""

import pytest
from playwright.sync_api import Browser, expect

from sessions.lifecycle import Reason, Status
from tests.browser import signed_in
from tests.factories import make_host, make_policy, make_project, make_user, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_a_managers_page_of_a_project_is_live(browser: Browser, server: LiveServer) -> None:
    manager, member, host = make_user(), make_user(), make_host(gpus=2)
    project = make_project(member, managers=[manager], name="vision", policy=make_policy(fgpu=4000, cpu=8))
    session = run_session(host=host, owner=member, project=project, fgpu=500, name="training")
    with signed_in(browser, server, manager) as context:
        page = context.new_page()
        page.goto("/projects/")
        page.get_by_role("link", name="vision").click()
        expect(page.locator("html")).to_have_attribute("data-connection", "live")
        expect(page.locator(f"#of-project-{session.pk}")).to_contain_text("training")
        page.get_by_label("E-mail address").fill(make_user(email="kim@example.org").email)
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.locator("#members")).to_contain_text("kim@example.org")
        expect(page.locator("html")).to_have_attribute("data-connection", "live")
        session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
        expect(page.locator(f"#of-project-{session.pk}")).to_have_count(0)
        page.set_viewport_size({"width": 360, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
