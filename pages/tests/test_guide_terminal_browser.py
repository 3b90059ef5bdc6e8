"""The guide's advanced use of the terminal, sentence by sentence (tests/guide-coverage.md), in one shell with tmux."""

import itertools
import re
from collections.abc import Iterator

import pytest
from django.conf import settings
from playwright.sync_api import Browser, Locator, Page, expect

from sessions.models import Session
from tests.browser import signed_in, wait_longer_for_answers
from tests.containers import lent_container
from tests.factories import make_host, make_user, run_session
from tests.live import LiveServer
from tests.shell_image import ensure_shell_image
from tests.wait import until

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.django_db(transaction=True)]

CLEAR = r"printf '\033[H\033[2J'"  # the image has no program for it
NUMBERS = itertools.count()
PROMPT = re.compile(r"^:\s*$")  # of tmux, in its status bar
LISTED = re.compile(r"\b0: .*\b1: ", re.DOTALL)  # what tmux shows of the shells
IN_HISTORY = re.compile(r"\[\d+/\d+\]")  # what tmux shows in the corner while its history is read


@pytest.fixture(scope="module")
def terminal(browser: Browser, module_db: None, server: LiveServer) -> Iterator[Page]:
    """The terminal of a running session, whose user may use the clipboard."""
    with lent_container(ensure_shell_image()) as container:
        owner = make_user()
        session = run_session(host=make_host(name=settings.COMPUTE_HOST_NAME), owner=owner, name="shells")
        Session.objects.filter(pk=session.pk).update(container_id=container.id)
        with signed_in(browser, server, owner, permissions=["clipboard-read", "clipboard-write"]) as context:
            wait_longer_for_answers(context)
            page = context.new_page()
            page.goto(f"/sessions/{session.pk}/terminal/")
            expect(page.locator(".xterm-rows")).to_contain_text("$")
            yield page


@pytest.fixture
def screen(terminal: Page) -> Locator:
    """The text of the terminal, cleared; its one shell waits for a command."""
    screen = terminal.locator(".xterm-rows")
    number = next(NUMBERS)
    terminal.keyboard.type(f"{CLEAR}; echo re''ady {number}\n")
    expect(screen).to_contain_text(f"ready {number}")  # not that of the test before
    return screen


def tmux(terminal: Page, screen: Locator, command: str) -> None:
    """Give tmux a command after Ctrl-B and a colon, and see it in the status bar."""
    terminal.keyboard.press("Control+b")
    terminal.keyboard.type(":")
    expect(screen.locator("> div").last).to_have_text(PROMPT)  # what comes sooner goes to the shell
    terminal.keyboard.type(command)
    expect(screen).to_contain_text(command)
    terminal.keyboard.press("Enter")
    expect(screen).not_to_contain_text(command)


def fill_history(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.type(f"{CLEAR}; seq 1 300; echo fi''lled\n")
    expect(screen).to_contain_text(re.compile(r"filled\S*\$"))  # the prompt too: Ctrl-C before it discards what follows


def wheel_up(terminal: Page, screen: Locator) -> None:
    box = screen.bounding_box()
    assert box
    terminal.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    terminal.mouse.wheel(0, -400)


def test_the_terminal_embeds_tmux(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.type("echo inside:$TMUX\n")
    expect(screen).to_contain_text("inside:/tmp/tmux-")


def test_the_status_bar_shows_what_is_typed_after_ctrl_b(terminal: Page, screen: Locator) -> None:
    tmux(terminal, screen, "display-message ok")


def test_dragged_text_is_copied_while_the_mouse_is_off(terminal: Page, screen: Locator) -> None:
    tmux(terminal, screen, "set -g mouse off")
    terminal.keyboard.type(f"{CLEAR}; echo copy-''this-text\n")
    line = screen.locator("> div", has_text="copy-this-text")
    expect(line).to_be_visible()
    box = line.bounding_box()
    assert box
    terminal.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
    terminal.mouse.down()
    terminal.mouse.move(box["x"] + 400, box["y"] + box["height"] / 2, steps=3)
    terminal.mouse.up()
    terminal.keyboard.press("Control+c")
    copied = "() => navigator.clipboard.readText()"  # until then what a test before has copied in this browser
    until(lambda: terminal.evaluate(copied).strip() == "copy-this-text")


def test_the_wheel_scrolls_while_the_mouse_is_on(terminal: Page, screen: Locator) -> None:
    tmux(terminal, screen, "set -g mouse on")
    fill_history(terminal, screen)
    wheel_up(terminal, screen)
    expect(screen).to_contain_text(IN_HISTORY)
    terminal.keyboard.press("q")
    expect(screen).not_to_contain_text(IN_HISTORY)


def test_the_wheel_does_not_scroll_while_the_mouse_is_off(terminal: Page, screen: Locator) -> None:
    tmux(terminal, screen, "set -g mouse off")
    fill_history(terminal, screen)
    wheel_up(terminal, screen)
    expect(screen).to_contain_text("seq 1 300")  # in place of tmux, the shell goes back to its last command
    terminal.keyboard.press("Control+c")
    expect(screen).to_contain_text(re.compile(r"\^C\S*\$"))
    terminal.keyboard.type("echo st''ill\n")
    expect(screen).to_contain_text("still")
    expect(screen).not_to_contain_text(IN_HISTORY)


def test_page_up_shows_history_while_the_mouse_is_off(terminal: Page, screen: Locator) -> None:
    tmux(terminal, screen, "set -g mouse off")
    fill_history(terminal, screen)
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("PageUp")
    expect(screen).to_contain_text(IN_HISTORY)
    terminal.keyboard.press("PageUp")
    expect(screen).not_to_contain_text("filled")
    terminal.keyboard.press("PageDown")
    terminal.keyboard.press("q")
    expect(screen).to_contain_text("filled")


def test_q_leaves_the_history(terminal: Page, screen: Locator) -> None:
    fill_history(terminal, screen)
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("PageUp")
    expect(screen).to_contain_text(IN_HISTORY)
    terminal.keyboard.press("q")
    expect(screen).not_to_contain_text(IN_HISTORY)


def test_ctrl_b_c_opens_a_new_shell(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.type("echo first-''shell\n")
    expect(screen).to_contain_text("first-shell")
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("c")
    expect(screen).not_to_contain_text("first-shell")
    terminal.keyboard.type("exit\n")
    expect(screen).to_contain_text("first-shell")  # it was not ended


def test_ctrl_b_w_lists_the_shells_by_number(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("c")
    expect(screen).not_to_contain_text("ready")
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("w")
    expect(screen).to_contain_text(LISTED)
    terminal.keyboard.press("q")
    expect(screen).to_contain_text("$")
    terminal.keyboard.type("exit\n")
    expect(screen).to_contain_text("ready")


def test_a_listed_shell_is_chosen_with_arrows_and_enter(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("c")
    expect(screen).not_to_contain_text("ready")
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("w")
    expect(screen).to_contain_text(LISTED)
    terminal.keyboard.press("ArrowUp")
    terminal.keyboard.press("Enter")
    expect(screen).not_to_contain_text(LISTED)  # which shows the first shell, too, and takes the keys until it is gone
    expect(screen).to_contain_text("ready")  # the first shell again
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("n")
    expect(screen).not_to_contain_text("ready")
    terminal.keyboard.type("exit\n")
    expect(screen).to_contain_text("ready")


def test_exit_ends_the_current_shell(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("c")
    expect(screen).not_to_contain_text("ready")
    terminal.keyboard.type("exit\n")
    expect(screen).to_contain_text("ready")


def test_ctrl_b_x_ends_the_shell_after_y(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("c")
    expect(screen).not_to_contain_text("ready")
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("x")
    expect(screen).to_contain_text("(y/n)")
    terminal.keyboard.press("y")
    expect(screen).to_contain_text("ready")


def test_another_control_key_of_tmux_conf_counts(terminal: Page, screen: Locator) -> None:
    terminal.keyboard.type("echo 'set -g prefix C-a' > ~/.tmux.conf; tmux source ~/.tmux.conf; echo loa''ded\n")
    expect(screen).to_contain_text("loaded")
    terminal.keyboard.press("Control+a")
    terminal.keyboard.press("c")
    expect(screen).not_to_contain_text("ready")
    terminal.keyboard.type("tmux set -g prefix C-b; rm ~/.tmux.conf; exit\n")
    expect(screen).to_contain_text("ready")
