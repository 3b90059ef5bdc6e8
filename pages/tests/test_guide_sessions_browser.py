"""The guide's words about the sessions page, each as one test (tests/guide-coverage.md), on one page of a browser."""

import re
from collections.abc import Iterator

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, expect

from accounts.models import User
from notifications.models import Notification
from resources.amounts.units import GIB
from sessions.lifecycle import Status
from tests.browser import signed_in
from tests.factories import (
    make_app,
    make_group,
    make_host,
    make_policy,
    make_session,
    make_user,
    run_session,
    session_in,
)
from tests.live import LiveServer

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def owner(browser: Browser, module_db: None) -> User:
    """A user with sessions in every state, in two groups, of which GPUs are divided; somebody else has one, too."""
    owner = make_user(policy=make_policy(cpu=8, memory=32 * GIB, fgpu=4000, allow_public_apps=False))
    host = make_host(group=make_group(name="alpha", fgpu_per_gpu=5), gpus=2)
    fields = {"owner": owner, "resource_group": host.group}
    running = run_session(make_session(name="runs-now", cpu=2, memory=4 * GIB, fgpu=500, **fields), host=host)
    make_app(running.image)
    run_session(owner=owner, name="elsewhere", resource_group=make_group(name="beta"))
    session_in(Status.TERMINATED, host=host, owner=owner, name="is-over")
    session_in(Status.ERROR, host=host, owner=owner, name="went-wrong")
    run_session(host=host, name="not-mine")
    Notification.objects.update(shown_at=timezone.now())  # no toast lies over the buttons
    return owner


@pytest.fixture(scope="module")
def opened(browser: Browser, server: LiveServer, owner: User) -> Iterator[Page]:
    """A tab on the sessions page."""
    with signed_in(browser, server, owner, viewport={"width": 1440, "height": 900}) as context:
        yield context.new_page()


@pytest.fixture
def page(opened: Page, server: LiveServer) -> Page:
    """The sessions page of group alpha with its scripts at work, loaded anew unless the last test only looked at it."""
    if not opened.evaluate("() => window.loadedAs === location.href && !document.querySelector('dialog[open]')"):
        opened.goto("/sessions/")
        opened.locator("#group").select_option("alpha")
        expect(opened.locator("#bars")).to_contain_text("in alpha")
        opened.evaluate("() => { window.loadedAs = location.href; }")
    return opened


@pytest.fixture
def row(page: Page) -> Locator:
    return page.locator("tr", has_text="runs-now")


def test_the_sidebar_leads_to_the_sessions_page(page: Page) -> None:
    page.goto("/folders/")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Sessions", exact=True).click()
    expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()


def test_the_page_starts_sessions_and_lists_running_ones(page: Page, row: Locator) -> None:
    expect(page.get_by_role("link", name="START").first).to_be_visible()
    expect(row).to_be_visible()


def test_start_leads_to_the_launch_wizard(page: Page) -> None:
    page.get_by_role("link", name="START").first.click()
    expect(page).to_have_url(re.compile("/sessions/launch/"))


def test_the_running_tab_lists_running_sessions(page: Page, row: Locator) -> None:
    page.get_by_role("link", name="RUNNING").click()
    expect(page.get_by_role("link", name="RUNNING")).to_have_attribute("aria-current", "page")
    expect(row).to_have_attribute("data-status", "RUNNING")
    expect(page.locator("tr", has_text="is-over")).to_have_count(0)


def test_the_finished_tab_lists_terminated_sessions(page: Page) -> None:
    page.get_by_role("link", name="FINISHED").click()
    expect(page.locator("tr", has_text="is-over")).to_have_attribute("data-status", "TERMINATED")


def test_the_others_tab_lists_sessions_with_errors(page: Page) -> None:
    page.get_by_role("link", name="Failed").click()
    expect(page.locator("tr", has_text="went-wrong")).to_have_attribute("data-status", "ERROR")


def test_a_row_shows_environment_resources_and_start(page: Page, row: Locator) -> None:
    expect(row).to_contain_text("Python")
    expect(row).to_contain_text("2 cores")
    expect(row).to_contain_text("4 GiB")
    expect(row.locator("time").first).to_be_visible()


def test_the_row_names_the_share_of_the_gpu(row: Locator) -> None:
    expect(row).to_contain_text("0.5 fGPU")


def test_users_see_only_their_own_sessions(page: Page, row: Locator) -> None:
    expect(row).to_be_visible()
    expect(page.locator("tr", has_text="not-mine")).to_have_count(0)


def test_superadmins_see_the_sessions_of_all(browser: Browser, server: LiveServer, owner: User) -> None:
    with signed_in(browser, server, make_user(is_superuser=True)) as context:
        page = context.new_page()
        page.goto("/sessions/")
        expect(page.locator("tr", has_text="not-mine")).to_be_visible()
        expect(page.locator("tr", has_text="runs-now")).to_contain_text(owner.email)


def test_a_reload_shows_the_list_again(page: Page, row: Locator) -> None:
    page.reload()
    expect(row).to_be_visible()


def test_statistics_stand_above_the_list(page: Page) -> None:
    bars, sessions = page.locator("#bars").bounding_box(), page.locator("#session-rows").bounding_box()
    assert bars
    assert sessions
    assert bars["y"] < sessions["y"]


def test_bars_show_what_is_used_and_what_can_be_had(page: Page) -> None:
    for name in ("cpu", "memory", "fgpu"):
        expect(page.locator(f"[data-bar={name}-mine]")).to_contain_text(re.compile(r"[\d.]+ (GiB )?of [\d.]+"))


def test_each_bar_has_an_upper_and_a_lower_part(page: Page) -> None:
    page.locator("#bar-parts summary").click()
    expect(page.locator("#bar-cpu progress")).to_have_count(2)
    for text in ("Upper: what my sessions hold in alpha, of that", "Lower: what all my sessions hold, of that"):
        expect(page.get_by_text(text)).to_be_visible()


def test_the_upper_part_counts_the_chosen_group(page: Page) -> None:
    # 2 cores here, 1 elsewhere, 8 by the policy: 5 more can be had.
    expect(page.locator("[data-bar=cpu-here]")).to_have_text("2 of 7 cores")


def test_the_lower_part_counts_all_groups(page: Page) -> None:
    expect(page.locator("[data-bar=cpu-all]")).to_have_text("3 of 8 cores")


def test_divided_gpus_are_counted_in_fgpu(page: Page) -> None:
    expect(page.locator("#bar-fgpu")).to_contain_text("fGPU")


def test_the_page_says_what_one_fgpu_is(page: Page) -> None:
    expect(page.locator("#gpus")).to_contain_text("A whole GPU is 5 fGPU here.")


def test_one_gpu_is_shared_by_several_users(page: Page) -> None:
    expect(page.locator("#gpus").get_by_role("img").first).to_have_attribute(
        "aria-label", re.compile("you hold 0.5 fGPU")
    )


def test_each_row_has_control_icons(row: Locator) -> None:
    expect(row.locator(".controls a")).to_have_count(4)


def test_the_first_icon_opens_the_app_launcher(page: Page, row: Locator) -> None:
    row.locator(".controls a").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("Apps of runs-now")
    expect(page.get_by_role("dialog").get_by_role("button", name="Jupyter")).to_be_visible()


def test_options_that_the_policy_forbids_are_not_shown(page: Page, row: Locator) -> None:
    row.locator(".controls a").first.click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Jupyter")).to_be_visible()
    expect(page.get_by_text("Open app to public")).to_have_count(0)


def test_the_second_icon_leads_to_the_terminal(row: Locator) -> None:
    terminal = row.locator(".controls a").nth(1)
    expect(terminal).to_have_attribute("href", re.compile("/terminal/$"))
    expect(terminal).to_have_attribute("target", "_blank")


def test_the_log_icon_leads_to_the_log(page: Page, row: Locator) -> None:
    row.get_by_role("link", name="Logs of runs-now").click()
    expect(page.get_by_role("heading", name="Logs of runs-now")).to_be_visible()


def test_the_red_power_icon_asks_before_it_ends(page: Page, row: Locator) -> None:
    row.locator(".btn-end").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Terminate")).to_be_visible()
    dialog.get_by_role("button", name="Keep").click()
    expect(row).to_be_visible()


def test_the_dialog_says_what_is_deleted(page: Page, row: Locator) -> None:
    row.locator(".btn-end").click()
    expect(page.get_by_role("dialog")).to_contain_text("is deleted")
