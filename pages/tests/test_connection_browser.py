"""What pages show while the network is silent: since when it is, and nothing that nobody saw."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from sessions.lifecycle import Reason, Status
from tests.browser import hold_time, signed_in
from tests.factories import make_user, run_session
from tests.live import LiveServer
from tests.relay import Relay, relaying

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def relay(server: LiveServer) -> Iterator[Relay]:
    with relaying(server.port) as running:
        yield running


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User) -> Iterator[Page]:
    with signed_in(browser, server, owner) as context:
        yield context.new_page()


def test_a_silent_network_greys_what_may_be_out_of_date(page: Page, relay: Relay, owner: User) -> None:
    session = run_session(owner=owner)
    page.goto(f"{relay.url}/sessions/")
    state, root = page.locator("#live-state"), page.locator("html.is-out-of-date")
    row = page.locator(f"#session-{session.pk}")
    expect(state.get_by_role("status")).to_have_text("Live")
    expect(state.get_by_role("button")).to_be_hidden()
    relay.freeze()
    expect(state).to_contain_text("Not connected. As of")
    expect(root).to_be_attached()
    session.move_to(Status.ERROR, Reason.CONTAINER_LOST)
    expect(row).to_contain_text("RUNNING")
    state.get_by_role("button", name="Reconnect").click()
    relay.thaw()
    expect(state.get_by_role("status")).to_have_text("Live")
    expect(root).not_to_be_attached()
    expect(row).not_to_be_attached()


def test_a_browser_without_a_network_says_so_at_once(page: Page, relay: Relay, owner: User) -> None:
    session = run_session(owner=owner)
    page.clock.install()
    page.goto(f"{relay.url}/sessions/{session.pk}/")
    state = page.locator("#live-state").get_by_role("status")
    expect(state).to_have_text("Live")
    hold_time(page)
    relay.freeze()
    page.evaluate("() => dispatchEvent(new Event('offline'))")
    expect(state).to_contain_text("Not connected. As of")
    relay.thaw()
    page.evaluate("() => dispatchEvent(new Event('online'))")
    expect(state).to_have_text("Live")
