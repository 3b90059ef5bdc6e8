"""The list of sessions in a real browser: live without fetching, usable at every width and by keyboard."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.utils import timezone
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

from accounts.models import User
from resources.models import Host
from sessions import notify
from sessions.lifecycle import Reason, Status
from sessions.models import SessionUsage
from tests.browser import signed_in
from tests.factories import make_host, make_session, make_user, run_session, session_in
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]
WIDTHS = (360, 390, 768, 992, 1100, 1280, 1440, 2560)


@pytest.fixture
def admin() -> User:
    return make_user(is_superuser=True)


@pytest.fixture
def host() -> Host:
    return make_host(gpus=2, cpu=64)


@pytest.fixture
def page(browser: Browser, server: LiveServer, admin: User) -> Iterator[Page]:
    """A tab of a superadmin; it must log no error."""
    with signed_in(browser, server, admin) as context:
        yield context.new_page()


def goto_watched(page: Page) -> None:
    """Open the list and wait until the server knows what it shows: what changes sooner is fetched, and may be."""
    page.add_init_script(
        """document.addEventListener("live:message", ({ detail }) => {
            if ("resources" in detail) document.documentElement.dataset.watched = "";
        });"""
    )
    page.goto("/sessions/")
    expect(page.locator("html[data-watched]")).to_be_attached()


def test_an_open_list_follows_without_fetching(page: Page, admin: User, host: Host) -> None:
    ending, staying = (run_session(host=host, owner=admin, fgpu=500) for _ in range(2))
    SessionUsage.objects.create(session=staying, cpu_milli=500, memory=2**29, gpu_utilisation=20, gpu_memory=2**30)
    goto_watched(page)
    use = page.locator(f"[data-use='{staying.pk}']")
    expect(use).to_contain_text("0.5 of 1 core")
    expect(use).to_contain_text("80 % of 0.5 fGPU")  # of its share, not of the card
    expect(page.locator("[data-gpus=free]")).to_have_text("3")
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(urlsplit(request.url).path))
    ending.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    expect(page.locator(f"#session-{ending.pk}")).to_have_count(0)
    expect(page.locator("[data-count=others]")).to_have_text("1")
    expect(page.locator("[data-gpus=free]")).to_have_text("3.5")
    waiting = make_session(owner=admin, resource_group=host.group, name="brand-new")
    notify.sessions_changed([(waiting.pk, admin.pk, None)])
    expect(page.locator("#session-rows tr").first).to_contain_text("brand-new")
    assert "/sessions/" not in fetched


def test_an_answer_from_before_a_change_does_not_undo_it(page: Page, admin: User, host: Host) -> None:
    ending, _ = (run_session(host=host, owner=admin, fgpu=500) for _ in range(2))
    goto_watched(page)
    row, free = page.locator(f"#session-{ending.pk}"), page.locator("[data-gpus=free]")
    late: list[tuple[Route, APIResponse]] = []
    page.route("**/sessions/", lambda route: late.append((route, route.fetch())), times=1)
    page.evaluate(
        """() => {
            document.addEventListener("htmx:afterSettle", ({ detail }) => {
                if (detail.xhr) document.documentElement.dataset.fetched = "";
            });
            document.dispatchEvent(new CustomEvent("live:changed"));
        }"""
    )
    until(lambda: page.evaluate("true") and late)
    ending.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    expect(row).to_have_count(0)
    expect(free).to_have_text("3.5")
    ((route, response),) = late
    route.fulfill(response=response)
    expect(page.locator("html[data-fetched]")).to_be_attached()
    expect(row).to_have_count(0)
    expect(free).to_have_text("3.5")


def test_a_page_connects_only_once_all_its_scripts_listen(page: Page) -> None:
    held: list[Route] = []
    page.route("**/js/session-list.js", lambda route: held.append(route))
    with page.expect_request("**/js/session-list.js"):
        page.goto("/sessions/", wait_until="commit")
    until(lambda: page.evaluate("() => Boolean(window.htmx && window.Idiomorph)"))
    assert not page.evaluate("() => import('#live').then(() => document.documentElement.dataset.connection)")
    held.pop().continue_()
    expect(page.locator("html")).to_have_attribute("data-connection", "live")


def test_every_control_is_in_view_at_every_width(page: Page, host: Host) -> None:
    session = run_session(host=host, fgpu=500, owner=make_user(email="a.rather.long.address@laboratory.example.org"))
    page.goto("/sessions/")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for name in ("apps", "terminal", "logs", "end"):
            box = page.locator(f"#{name}-{session.pk}").bounding_box()
            assert box
            assert 0 <= box["x"] <= width - box["width"], f"{name} at {width}"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width


def test_menus_and_selection_work_by_keyboard(page: Page, host: Host) -> None:
    for fgpu in (500, 500):
        run_session(host=host, fgpu=fgpu, created_at=timezone.now())
    page.goto("/sessions/")
    page.locator("#filters summary").press("Enter")
    expect(page.locator("#filter-environment")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#filter-environment")).to_be_hidden()
    expect(page.locator("#filters summary")).to_be_focused()
    page.locator("#tick-all").press("Space")
    expect(page.locator("[data-ticked-count]")).to_have_text("2")
    page.get_by_role("button", name="Terminate selected").press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("2 sessions")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Clear").press("Enter")
    expect(page.locator("[data-ticked-bar]")).to_be_hidden()
    page.locator("#columns summary").press("Enter")
    page.locator("#column-place").press("Space")
    expect(page.locator(".td-place").first).to_contain_text(host.name)


def test_clicks_amid_updates_of_the_list_count(page: Page, host: Host) -> None:
    """An update is under way, and the next one comes: what is clicked between them opens all the same."""
    session, parked = run_session(host=host), session_in(Status.PARKED)
    goto_watched(page)
    held: list[Route] = []
    page.route(re.compile("/sessions/$"), lambda route: held.append(route))  # Playwright counts parameters
    refresh = "() => htmx.trigger('#live', 'live:refresh')"
    page.evaluate(refresh)
    page.locator(f"#end-{session.pk}").click()
    page.evaluate(refresh)
    expect(page.get_by_role("dialog")).to_contain_text(session.name)
    page.keyboard.press("Escape")
    page.locator("#tab-parked").click()  # waits for the update, and goes before the next
    page.evaluate(refresh)
    for route in held:
        route.continue_()
    expect(page.locator("#tab-parked")).to_have_attribute("aria-current", "page")
    expect(page.locator(f"#session-{parked.pk}")).to_be_visible()
