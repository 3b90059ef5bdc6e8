"""The terminal's page, and that of the logs, in a real browser, on a real container with bash and tmux."""

import re
import secrets
import signal
from collections.abc import Iterator

import pytest
from django.conf import settings
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from sessions import notify
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.parking import services as parking
from tests.browser import allow_errors, hold_time, signed_in, wait_longer_for_answers
from tests.containers import Container, lent_container
from tests.factories import make_host, make_session, make_user, run_session
from tests.live import LiveServer
from tests.shell_image import ensure_shell_image
from tests.tiny_image import ensure_tiny_image
from tests.wait import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.docker]


@pytest.fixture
def owner() -> User:
    """A user without privileges."""
    return make_user()


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User) -> Iterator[Page]:
    """A tab in which the owner is signed in and may use the clipboard; it must log no error."""
    with signed_in(browser, server, owner, permissions=["clipboard-read", "clipboard-write"]) as context:
        wait_longer_for_answers(context)
        yield context.new_page()


@pytest.fixture
def container() -> Iterator[Container]:
    """A container with bash and tmux."""
    with lent_container(ensure_shell_image()) as running:
        yield running


@pytest.fixture
def session(owner: User, container: Container) -> Session:
    """The owner's running session in that container."""
    return session_in(container, owner)


def session_in(container: Container, owner: User) -> Session:
    """Return a running session of `owner` in this container."""
    running = run_session(host=make_host(name=settings.COMPUTE_HOST_NAME), owner=owner, name="my-session")
    Session.objects.filter(pk=running.pk).update(container_id=container.id)
    running.refresh_from_db()
    return running


def open_terminal(page: Page, server: LiveServer, session: Session) -> None:
    """Go to the terminal and wait for its prompt."""
    page.goto(f"{server.url}/sessions/{session.pk}/terminal/")
    expect(page.locator(".xterm-rows")).to_contain_text("$")


def run(page: Page, command: str) -> None:
    """Type a command."""
    page.keyboard.type(f"{command}\n")


def test_a_reload_returns_to_the_same_shell(page: Page, server: LiveServer, session: Session) -> None:
    open_terminal(page, server, session)
    run(page, "echo $((6*7)) > a.txt; cat a.txt; mine=4711")
    expect(page.locator(".xterm-rows")).to_contain_text("42")
    page.reload()
    expect(page.locator(".xterm-rows")).to_contain_text("42")
    run(page, "echo =$mine=")
    expect(page.locator(".xterm-rows")).to_contain_text("=4711=")


def test_the_terminal_comes_back_after_the_server_crashed(page: Page, server: LiveServer, session: Session) -> None:
    allow_errors(page.context, "net::ERR_CONNECTION_REFUSED")
    open_terminal(page, server, session)
    run(page, "mine=4711; echo rea''dy")
    expect(page.locator(".xterm-rows")).to_contain_text("ready")
    server.end(signal.SIGKILL)
    expect(page.locator("#terminal-state")).to_have_attribute("data-state", "lost")
    server.start()
    expect(page.locator("#terminal-state")).to_have_attribute("data-state", "open")
    run(page, "echo =$mine=")
    expect(page.locator(".xterm-rows")).to_contain_text("=4711=")


@pytest.mark.parametrize("missing", ["terminal.js", "xterm.mjs", "terminal-connection.js"])
def test_a_missing_script_is_reported(page: Page, server: LiveServer, session: Session, missing: str) -> None:
    allow_errors(page.context, "net::ERR_FAILED")
    stem, extension = missing.split(".")
    page.route(re.compile(rf"/{stem}(\.\w+)?\.{extension}$"), lambda route: route.abort())
    page.clock.install()
    page.goto(f"{server.url}/sessions/{session.pk}/terminal/")
    page.clock.fast_forward(16_000)  # no vaguer cause takes its place
    trouble = page.get_by_role("alertdialog", name="The terminal does not come up")
    expect(trouble).to_contain_text("A part of this page did not arrive")
    expect(page.locator("#terminal-state")).to_have_text("Not connected")
    page.unroute_all()
    trouble.get_by_role("button", name="Reload").click()
    expect(page.locator(".xterm-rows")).to_contain_text("$")
    expect(trouble).to_be_hidden()


def test_a_connection_that_never_opens_is_reported(page: Page, server: LiveServer, session: Session) -> None:
    page.clock.install()
    hold_time(page)
    page.add_init_script(
        """window.RealWebSocket = window.WebSocket;
        window.WebSocket = class { static OPEN = 1; readyState = 0; close() {} };"""
    )
    page.goto(f"{server.url}/sessions/{session.pk}/terminal/")
    expect(page.locator("#terminal .xterm-rows")).to_be_attached()
    trouble = page.get_by_role("alertdialog", name="The terminal does not come up")
    expect(trouble).to_be_hidden()
    page.clock.fast_forward(16_000)
    expect(trouble).to_contain_text("may not let websockets pass")
    expect(trouble.get_by_role("button", name="Reload")).to_be_focused()
    page.evaluate("() => { window.WebSocket = window.RealWebSocket; }")
    page.clock.fast_forward(20_000)  # the terminal gives the handshake up, and tries again
    page.clock.resume()
    expect(page.locator(".xterm-rows")).to_contain_text("$")
    expect(trouble).to_be_hidden()


def test_utf8_is_shown_and_typed(page: Page, server: LiveServer, session: Session, container: Container) -> None:
    open_terminal(page, server, session)
    run(page, "echo 'grüße 日本 🚀' > utf8.txt; cat utf8.txt")
    until(lambda: container.run("cat utf8.txt 2>/dev/null") == "grüße 日本 🚀\n")
    expect(page.locator(".xterm-rows")).to_contain_text("grüße 日本 🚀")


def test_the_shell_follows_the_size_of_the_window(
    page: Page, server: LiveServer, session: Session, container: Container
) -> None:
    open_terminal(page, server, session)
    page.set_viewport_size({"width": 700, "height": 400})
    client_size = "tmux list-clients -t gp -F '#{client_width}x#{client_height}'"
    until(lambda: 50 < int(container.run(client_size).split("x")[0] or 0) < 90)
    narrow = container.run(client_size)
    page.get_by_role("button", name="Larger text").click(click_count=4)
    until(lambda: 0 < int(container.run(client_size).split("x")[0] or 0) < int(narrow.split("x")[0]))


def test_a_paste_of_100_kb_arrives_whole(
    page: Page, server: LiveServer, session: Session, container: Container
) -> None:
    text = "".join(f"{secrets.token_hex(40)}\n" for _ in range(1300))
    open_terminal(page, server, session)
    run(page, "stty -echo; echo rea''dy; cat > pasted.txt")
    expect(page.locator(".xterm-rows")).to_contain_text("ready")  # the shell itself reads no more of the paste
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    page.get_by_role("button", name="Paste").click()
    until(lambda: container.run("wc -c < pasted.txt").strip() == str(len(text)))
    page.keyboard.press("Control+d")
    assert container.run("cat pasted.txt") == text


def test_programs_copy_only_after_a_click(page: Page, server: LiveServer, session: Session) -> None:
    open_terminal(page, server, session)
    page.evaluate("() => navigator.clipboard.writeText('mine')")
    run(page, r"printf '\ePtmux;\e\e]52;c;aGFsbG8=\a\e\\'; printf '\e]52;c;aGFsbG8=\a'; tmux set -g set-clipboard on")
    run(page, r"clear; printf '\e]52;c;aGFsbG8=\a'; echo co''pied")
    expect(page.locator(".xterm-rows")).to_contain_text("copied")
    request = page.locator("#terminal-copy")
    expect(request).to_contain_text("A program wants to copy: hallo")
    assert page.evaluate("() => navigator.clipboard.readText()") == "mine"
    request.get_by_role("button", name="Do not copy").click()
    expect(request).to_be_hidden()
    run(page, r"clear; printf '\e]52;c;aGFsbG8=\a'; echo co''pied")
    request.get_by_role("button", name="Copy to the clipboard").click()
    until(lambda: page.evaluate("() => navigator.clipboard.readText()") == "hallo")
    expect(page.locator(".xterm-rows")).to_contain_text("copied")
    box = page.locator(".xterm-rows > div", has_text="copied").first.bounding_box()
    assert box
    page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")  # tmux is never late
    page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + box["height"] / 2, steps=3)
    page.mouse.up()
    until(lambda: page.evaluate("() => navigator.clipboard.readText()").strip() == "copied")


def test_the_sessions_end_is_shown_without_retries(page: Page, server: LiveServer, session: Session) -> None:
    open_terminal(page, server, session)
    session.move_to(Status.TERMINATING, Reason.TIME_LIMIT, "It reached its time limit.")
    overlay = page.get_by_role("alertdialog")
    expect(overlay).to_contain_text("The session has ended")
    expect(overlay).to_contain_text("It reached its time limit.")
    expect(overlay.get_by_role("link", name="Launch again")).to_be_focused()
    expect(overlay.get_by_role("button")).to_have_count(0)


def test_a_parked_sessions_terminal_resumes_it_and_goes_on(page: Page, server: LiveServer, session: Session) -> None:
    open_terminal(page, server, session)
    run(page, "echo $((6*7))")
    parking.park(session, actor=session.owner)
    overlay = page.get_by_role("alertdialog")
    expect(overlay).to_contain_text("The session is being parked")
    session.move_to(Status.PARKED, Reason.PARKED)
    expect(overlay).to_contain_text("The session is parked")
    expect(overlay.get_by_role("link", name="Launch again")).to_be_hidden()
    page.keyboard.press("Enter")  # the link has the focus
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(overlay).to_contain_text("The session waits to run again")
    expect(overlay.get_by_role("link", name="Resume")).to_be_hidden()
    resumed = run_session(Session.objects.get(pk=session.pk), host=session.host)
    Session.objects.filter(pk=resumed.pk).update(container_id=session.container_id)
    resumed.refresh_from_db()
    notify.sessions_changed([(resumed.pk, resumed.owner_id, None)])
    expect(page.locator("#terminal-state")).to_have_attribute("data-state", "open")
    expect(overlay).to_be_hidden()
    expect(page.locator(".xterm-helper-textarea")).to_be_focused()


def test_the_log_page_shows_an_ended_sessions_output(page: Page, server: LiveServer, session: Session) -> None:
    page.goto(f"{server.url}/sessions/{session.pk}/logs/")
    expect(page.locator("#live-state")).to_contain_text("Live")
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST, fields={"log_tail": "last words"})
    expect(page.locator("h1 + * .status-badge")).to_have_text("Terminated")
    expect(page.locator("#log-text")).to_contain_text("last words")


def test_an_exited_shell_can_be_restarted(page: Page, server: LiveServer, owner: User) -> None:
    with lent_container(ensure_tiny_image()) as bare:
        page.goto(f"{server.url}/sessions/{session_in(bare, owner).pk}/terminal/")
        expect(page.locator(".xterm-rows")).to_contain_text("#")
        run(page, "exit")
        expect(page.get_by_role("alertdialog")).to_contain_text("The shell has ended")
        page.keyboard.press("Enter")  # the button has the focus
        expect(page.locator("#terminal-state")).to_have_attribute("data-state", "open")
        run(page, "echo $((6*7))")
        expect(page.locator(".xterm-rows")).to_contain_text("42")


def test_a_waiting_page_becomes_the_terminal_by_itself(
    page: Page, server: LiveServer, owner: User, container: Container
) -> None:
    host = make_host(name=settings.COMPUTE_HOST_NAME)
    waiting = make_session(owner=owner, resource_group=host.group)
    page.goto(f"{server.url}/sessions/{waiting.pk}/terminal/")
    expect(page.get_by_role("heading")).to_contain_text("is not running yet")
    expect(page.locator("#live-state")).to_contain_text("Live")
    run_session(waiting, host=host)
    Session.objects.filter(pk=waiting.pk).update(container_id=container.id)
    expect(page.locator("#terminal-state")).to_have_attribute("data-state", "open")


def test_the_help_lists_keys_and_returns_focus(page: Page, server: LiveServer, session: Session) -> None:
    open_terminal(page, server, session)
    page.get_by_role("button", name="Help").click()
    expect(page.get_by_role("dialog")).to_contain_text(":set -g mouse off")
    page.keyboard.press("Escape")
    expect(page.locator(".xterm-helper-textarea")).to_be_focused()
    run(page, "echo $((6*7))")
    expect(page.locator(".xterm-rows")).to_contain_text("42")
