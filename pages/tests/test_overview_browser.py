"""Summary, hosts and account in a browser: live, and by keyboard."""

import pytest
from playwright.sync_api import Browser, expect

from sessions.launching import services
from sessions.lifecycle import Reason
from tests.browser import signed_in
from tests.factories import make_host, make_user, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_summary_hosts_and_tokens_work_in_a_browser(browser: Browser, server: LiveServer) -> None:
    admin = make_user(is_superuser=True)
    host = make_host(name="alpha", gpus=2)
    session = run_session(host=host, owner=admin, name="training", fgpu=1500)
    with signed_in(browser, server, admin) as context:
        page = context.new_page()
        page.goto("/")  # the summary is live
        row = page.locator(f"#mine-{session.pk}")
        expect(row).to_contain_text("Running")
        services.end(session, Reason.USER_REQUEST, "Ended.")
        expect(row).to_contain_text("Terminating")

        page.goto("/hosts/")  # out of service, by keyboard alone
        page.get_by_role("link", name=f"Take out of service: {host.name}").focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("1 session is on it now.")
        dialog.get_by_label("Sessions that are left").select_option("60")
        dialog.get_by_label("Why").fill("new fans")
        page.keyboard.press("Enter")
        expect(page.get_by_text("Leaving service")).to_be_visible()
        expect(page.locator(".host-note")).to_contain_text("new fans")

        page.goto("/accounts/tokens/")  # a token is shown once
        page.get_by_label("Name").fill("backup")
        page.get_by_role("button", name="Make token").click()
        token = page.get_by_label("The new token").input_value()
        assert len(token) == 64
        page.goto("/accounts/tokens/")
        expect(page.get_by_text("backup", exact=True)).to_be_visible()
        assert token not in page.content()
