"""What pages show while the network is silent: since when it is, and nothing that nobody saw."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from hostworker.terminals.message import SHOW
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.browser import hold_time, signed_in
from tests.containers import Container, lent_container
from tests.factories import make_host, make_policy, make_user, run_session
from tests.live import LiveServer, login_cookie
from tests.relay import Relay, relaying
from tests.shell_image import ensure_shell_image
from tests.wait import until

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

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
    expect(row).to_contain_text("Running")
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
    relay.freeze()  # first, so that no answer is under way any more
    hold_time(page)
    page.evaluate("() => dispatchEvent(new Event('offline'))")
    expect(state).to_contain_text("Not connected. As of")
    relay.thaw()
    page.evaluate("() => dispatchEvent(new Event('online'))")
    expect(state).to_have_text("Live")


@pytest.mark.docker
def test_what_is_typed_into_a_silent_network_is_never_sent(page: Page, relay: Relay, owner: User) -> None:
    with lent_container(ensure_shell_image()) as container:
        session = running_in(container, owner)
        page.goto(f"{relay.url}/sessions/{session.pk}/terminal/")
        expect(page.locator(".xterm-rows")).to_contain_text("$")
        page.keyboard.type("echo sent >> typed\n")
        until(lambda: container.run("cat typed 2>/dev/null") == "sent\n")
        relay.freeze()
        page.keyboard.type("echo unnoticed >> typed\n")  # before anybody can know
        state = page.locator("#terminal-state")
        expect(state).to_have_attribute("data-state", re.compile("silent|lost"))
        expect(state).to_contain_text("What you type is not sent")
        page.keyboard.type("echo refused >> typed\n")
        expect(page.locator("#terminal-notice")).to_contain_text("Not sent")
        expect(state).to_have_attribute("data-state", "lost")
        relay.thaw()
        expect(state).to_have_attribute("data-state", "open")
        page.keyboard.type("echo again >> typed\n")
        until(lambda: "again" in container.run("cat typed"))
        assert container.run("cat typed") == "sent\nagain\n"


@pytest.mark.docker
def test_a_terminal_counts_the_end_down_and_extends(page: Page, server: LiveServer) -> None:
    owner = make_user(policy=make_policy(max_lifetime=HOUR, max_extension=HOUR))
    page.context.add_cookies([login_cookie(owner, server.url)])  # type: ignore[list-item]
    with lent_container(ensure_shell_image()) as container:
        session = running_in(container, owner)
        Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - HOUR + 9 * MINUTE)
        page.goto(f"{server.url}/sessions/{session.pk}/terminal/")
        expect(page.locator(".xterm-rows")).to_contain_text("$")
        left = page.locator("#terminal-left")
        expect(left).to_contain_text(re.compile(r"[78] min \d+ s left"))
        expect(page).to_have_title(re.compile(r"^[78] min \d+ s left · "))
        container.run(f"export GP_TEXT='it ends in 9 minutes'; {SHOW}")
        expect(page.locator(".xterm-rows")).to_contain_text("it ends in 9 minutes")
        left.get_by_role("link", name="Extend").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("combobox")).to_be_focused()
        page.keyboard.press("End")  # the most
        dialog.get_by_role("button", name="Extend").click()
        expect(page.locator("#toasts")).to_contain_text("runs 1 h longer")
        expect(left).to_contain_text(re.compile(r"1 h [678] min left"))
        expect(page).to_have_title(re.compile("^(?!.*left)"))


def running_in(container: Container, owner: User) -> Session:
    """Return a running session of `owner` in this container."""
    session = run_session(host=make_host(name=settings.COMPUTE_HOST_NAME), owner=owner)
    Session.objects.filter(pk=session.pk).update(container_id=container.id)
    return session
