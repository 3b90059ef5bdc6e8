"""The launch wizard in a real browser: its pages, its dialogs, and what it says while it is filled in."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from accounts.models import User
from pages.models import LaunchDraft
from resources.amounts.units import GIB
from resources.models import Gpu, Host, ResourceGroup
from sessions.models import Session
from tests.browser import signed_in
from tests.factories import (
    make_folder,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_preset,
    make_root,
    make_session,
    make_user,
    run_session,
)
from tests.live import LiveServer
from tests.wait import until
from tests.wizard import choose_environment, launch_without_folder, open_step

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

LAUNCH = "/sessions/launch/"


@pytest.fixture
def owner() -> User:
    return make_user(policy=make_policy(cpu=4, max_sessions=5, max_pending=9))


@pytest.fixture
def host(owner: User) -> Host:
    """A host with one GPU of 2 fGPU and 8 GiB, an image, three presets, and a folder of the owner."""
    host = make_host(group=make_group(name="lab", fgpu_per_gpu=2), gpus=1)
    Gpu.objects.update(memory=8 * GIB)
    make_image(environment="Python", version="3.9")
    make_image(environment="Python", version="3.11", description="Python 3.11 and JupyterLab")
    make_preset(name="small", cpu=1, fgpu=500)
    make_preset(name="large", cpu=2, memory=4 * GIB, fgpu=2000)
    make_preset(name="huge", cpu=8, fgpu=2000)
    make_folder(owner, root=make_root(host), name="data")
    return host


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User, host: Host) -> Iterator[Page]:
    with signed_in(browser, server, owner) as context:
        yield context.new_page()


def expect_step(page: Page, title: str) -> None:
    """Wait until one page of the wizard is shown, this one: all of them are until the scripts are at work."""
    expect(page.locator(".launch-title:visible")).to_have_text([title])


def test_four_pages_are_reached_by_arrows_and_directly(page: Page) -> None:
    page.goto(LAUNCH)
    expect_step(page, "Environment")
    for name in ("Data folders", "Resources", "Review"):
        expect(page.get_by_role("button", name="Confirm and launch")).to_be_visible()
        page.get_by_role("link", name=f"Next: {name}").click()
        expect_step(page, name)
    expect(page.get_by_role("link", name="Next:")).to_be_hidden()
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_visible()
    page.get_by_role("link", name="Back: Resources").click()
    expect_step(page, "Resources")
    page.go_back()
    expect_step(page, "Review")
    open_step(page, "Data folders")
    expect(page).to_have_url(f"{page.url.split('/sessions/')[0]}{LAUNCH}folders/")
    page.reload()
    expect_step(page, "Data folders")


def test_what_is_typed_survives_reload_and_sign_out(page: Page) -> None:
    page.goto(LAUNCH)
    page.get_by_label("Session name").fill("half done")
    choose_environment(page, "Python", "3.9")
    open_step(page, "Data folders")
    page.get_by_role("checkbox", name="data").check()
    page.get_by_label("Path of data in the session").fill("sets")
    open_step(page, "Review")
    expect(page.locator("#review")).to_contain_text("/home/work/sets")
    expect(page.locator("#review")).to_contain_text("half done")
    cookies = page.context.cookies()
    page.context.clear_cookies()
    page.reload()
    expect(page.get_by_label("Password", exact=True)).to_be_visible()
    page.context.add_cookies(cookies)  # type: ignore[arg-type]
    page.goto(f"{LAUNCH}folders/")
    expect(page.get_by_text("You left off here.")).to_be_visible()
    expect(page.get_by_label("Path of data in the session")).to_have_value("sets")
    open_step(page, "Environment")
    expect(page.get_by_label("Session name")).to_have_value("half done")
    expect(page.get_by_label("Version").locator("option:checked")).to_have_text("3.9")
    expect(page.locator("#error-name")).to_contain_text("only letters")
    page.get_by_role("button", name="Start over").click()
    expect(page.get_by_label("Session name")).to_have_value("")


def test_all_errors_show_at_once_and_lead_there(page: Page) -> None:
    page.goto(f"{LAUNCH}resources/")
    page.locator(".preset", has_text="Custom allocation").click()
    page.fill("#id_cpu", "9")
    expect(page.locator("#error-cpu")).to_have_text("Your policy allows at most 4 CPU cores.")
    page.fill("#id_shared_memory", "64g")
    page.fill("#id_count", "0")
    open_step(page, "Environment")
    page.get_by_label("Session name").fill("a b")
    page.locator("#launch-button").click()
    errors = page.locator("#launch-errors li")
    expect(errors).to_have_count(4)
    expect_step(page, "Environment")
    expect(page.get_by_role("link", name="Resources needs a look")).to_be_visible()
    expect(page.locator("#launch-errors [data-problem]")).to_have_count(0)  # the scripts have taken over
    shown = errors.first.element_handle()
    for name in ("a c", "a d"):
        with page.expect_response("**/launch/advice/"):
            page.get_by_label("Session name").fill(name)
    assert shown.evaluate("item => item.isConnected"), "nobody may be about to click it"
    errors.get_by_role("button", name="Start 1 to 50 sessions at once.").click()
    expect_step(page, "Resources")
    expect(page.locator("#id_count")).to_be_focused()
    expect(page.locator("#id_count")).to_have_attribute("aria-invalid", "true")
    assert not Session.objects.exists()


def test_variables_follow_the_rules_of_their_dialog(page: Page) -> None:
    page.goto(LAUNCH)
    config = page.get_by_role("button", name="Config")
    config.click()
    dialog = page.get_by_role("dialog", name="Set environment variables")
    names, values = dialog.get_by_label("Variable name"), dialog.get_by_label("Variable value")
    dialog.get_by_label("About environment variables").click()
    expect(dialog).to_contain_text("Save applies every row that has both a name and a value.")
    dialog.get_by_label("About environment variables").click()
    names.fill("A")
    values.fill("1")
    dialog.get_by_role("button", name="Add a variable").click()
    names.nth(1).fill("A")
    values.nth(1).fill("2")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("A is set twice.")
    names.nth(1).fill("B")
    dialog.get_by_role("button", name="Add a variable").click()
    names.nth(2).fill("EMPTY")
    dialog.get_by_role("button", name="Save").click()
    question = page.get_by_role("dialog", name="Close without saving?")
    expect(question).to_contain_text("1 row lacks its name or its value and is not applied.")
    question.get_by_role("button", name="Save the others").click()
    expect(page.locator("#variables-said")).to_have_text("2 variables are set: A, B")


def test_unsaved_variables_are_warned_about_on_close(page: Page) -> None:
    page.goto(f"{LAUNCH}?env=A=1&env=B=2")
    config = page.get_by_role("button", name="Config")
    config.click()
    dialog = page.get_by_role("dialog", name="Set environment variables")
    question = page.get_by_role("dialog", name="Close without saving?")
    names, values = dialog.get_by_label("Variable name"), dialog.get_by_label("Variable value")
    expect(names).to_have_count(2)
    dialog.get_by_role("button", name="Remove this variable").first.click()
    page.keyboard.press("Escape")
    expect(question).to_contain_text("What is not saved is not applied to the session.")
    question.get_by_role("button", name="Keep editing").click()
    dialog.get_by_role("button", name="Close").click()
    question.get_by_role("button", name="Close without saving").click()
    expect(page.locator("#variables-said")).to_contain_text("A, B")
    config.click()
    dialog.get_by_role("button", name="Delete all").click()
    names.fill("ONLY")
    values.fill("x")
    dialog.get_by_role("button", name="Save").click()
    open_step(page, "Review")
    expect(page.locator("#review")).to_contain_text("ONLY=x")
    launch_without_folder(page)
    expect(page.get_by_text("Launched")).to_be_visible()
    assert Session.objects.get().environment == {"ONLY": "x"}


def test_controls_work_before_the_scripts_are_loaded(page: Page) -> None:
    held: list[Route] = []
    page.route("**/js/launch.js", lambda route: held.append(route))
    with page.expect_request("**/js/launch.js"):
        page.goto(LAUNCH, wait_until="commit")
    choose_environment(page, "Python", "3.9")
    page.get_by_label("Session name").fill("early-bird")
    page.get_by_role("link", name="Next: Data folders").click()
    expect_step(page, "Environment")
    held[0].continue_()
    expect(page.get_by_role("heading", name="Data folders")).to_be_visible()
    open_step(page, "Review")
    expect(page.locator("#review")).to_contain_text("Python 3.9")
    expect(page.locator("#review")).to_contain_text("early-bird")


def test_an_environment_is_chosen_without_scripts(
    browser: Browser, server: LiveServer, owner: User, host: Host
) -> None:
    with signed_in(browser, server, owner, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(LAUNCH)
        choose_environment(page, "Python", "3.9")
        page.locator(".preset", has_text="small").click()
        page.locator("#launch-button").click()
        expect(page.get_by_text("Launched")).to_be_visible()
    assert Session.objects.get().image.version == "3.9"


def test_the_guaranteed_part_of_the_cores_is_said(page: Page, host: Host) -> None:
    ResourceGroup.objects.update(cpu_overcommit=4)
    page.goto(f"{LAUNCH}resources/")
    words = page.locator("#cpu-words")
    expect(words).to_have_text("0.25 of 1 core guaranteed, the rest while others leave it idle")
    page.locator(".preset", has_text="large").click()
    expect(words).to_have_text("0.5 of 2 cores guaranteed, the rest while others leave it idle")
    page.goto(f"{LAUNCH}review/")
    expect(page.locator("#review")).to_contain_text("of which 0.5 guaranteed")


def test_a_page_that_overtakes_the_draft_is_loaded_again(page: Page) -> None:
    page.goto(f"{LAUNCH}resources/")
    expect(page.locator("#advice")).to_contain_text("Starts now")
    drafts: list[Route] = []
    scripts: list[Route] = []
    page.route("**/launch/advice/", lambda route: drafts.append(route), times=1)
    page.route("**/js/launch.js", lambda route: scripts.append(route), times=1)
    page.locator(".preset", has_text="large").click()
    with page.expect_request("**/js/launch.js"):
        page.goto(f"{LAUNCH}review/", wait_until="commit")
    drafts[0].continue_()
    until(LaunchDraft.objects.exclude(values__changes=["0"]).exists)
    scripts[0].continue_()
    expect(page.locator("#review")).to_contain_text("2 cores")


def test_resources_are_said_in_words_and_bounded(page: Page, host: Host) -> None:
    run_session(host=host, cpu=1, fgpu=1000, time_limit=timedelta(hours=2))
    page.goto(f"{LAUNCH}resources/")
    small, huge = page.locator(".preset", has_text="small"), page.locator(".preset", has_text="huge")
    expect(small).to_contain_text("0.5 fGPU: 2 GiB of 8 GiB of a GPU, 25 % of its time")
    expect(huge).to_contain_text("Your policy allows at most 4 CPU cores.")
    expect(huge.get_by_role("radio")).to_be_disabled()
    expect(page.locator("#id_resource_group")).to_have_attribute("type", "hidden")  # one group is fixed
    page.locator(".preset", has_text="Custom allocation").click()
    assert page.locator("[data-amount=cpu] [data-slider]").get_attribute("max") == "4"
    page.get_by_label("About GPU", exact=True).click()
    expect(page.locator("[data-amount=fgpu]")).to_contain_text("The share of a GPU, in steps of 0.01 fGPU.")
    page.fill("#id_fgpu", "1")
    page.fill("#id_count", "2")
    expect(page.locator("#gpu-words")).to_contain_text("1 fGPU = 4 GiB of 8 GiB of a GPU, 50 % of its time")
    advice = page.locator("#advice")
    expect(advice).to_contain_text("1 starts now")
    expect(advice).to_contain_text(re.compile(r"1 session: starts .+ to .+, \d of 10"))
    page.get_by_role("button", name="all now with 0.5 fGPU each").click()
    expect(advice).to_contain_text("All 2 start now")
    launch_without_folder(page)
    expect(page.get_by_text("Launched 2 sessions.")).to_be_visible()
    assert set(Session.objects.filter(owner__policy__cpu=4).values_list("fgpu", flat=True)) == {500}


def test_what_would_wait_is_reviewed_first(page: Page, host: Host) -> None:
    run_session(host=host, fgpu=2000, time_limit=timedelta(days=2))
    page.goto(f"{LAUNCH}folders/")
    page.get_by_role("checkbox", name="data").check()
    page.get_by_role("button", name="Confirm and launch").click()
    expect_step(page, "Review")
    expect(page.locator("#messages")).to_contain_text("Not launched yet: look at it once more. It would wait")
    assert not Session.objects.filter(status="PENDING").exists()
    page.get_by_role("button", name="Queue, starts about").click()
    expect(page.get_by_text("Launched")).to_be_visible()
    assert Session.objects.get(status="PENDING").mounts.exists()


def test_launching_without_a_folder_is_warned_about(page: Page) -> None:
    page.goto(LAUNCH)
    page.get_by_role("button", name="Confirm and launch").click()
    expect(page.locator("#messages")).to_contain_text("No data folder is mounted.")
    expect_step(page, "Review")
    expect(page.locator("#review")).to_contain_text("No folder is mounted")
    page.locator("#launch-button").click()
    question = page.get_by_role("dialog", name="No data folder is mounted")
    question.get_by_role("button", name="Choose folders").click()
    expect_step(page, "Data folders")
    page.get_by_role("checkbox", name="data").check()
    page.locator("#launch-button").click()
    expect(page.get_by_text("Launched")).to_be_visible()
    page.goto(LAUNCH)
    expect(page.get_by_text("Filled in as in your last launch.")).to_be_visible()
    open_step(page, "Data folders")
    expect(page.get_by_role("checkbox", name="data")).to_be_checked()


def test_a_command_becomes_an_array(page: Page, owner: User, host: Host) -> None:
    for number in range(7):
        make_session(owner=owner, name=f"before-{number}", resource_group=host.group)
    page.goto(f"{LAUNCH}resources/")
    page.get_by_text("Advanced", exact=True).click()
    array = page.locator("#array")
    expect(array).to_be_hidden()
    page.locator("#id_command").fill("train")
    array.get_by_text("Run as an array").press("Enter")
    expect(array.get_by_label("Parameters")).to_be_hidden()
    array.get_by_label("Tasks", exact=True).select_option("grid")
    expect(array.get_by_label("Seed")).to_be_hidden()
    array.get_by_label("Parameters").fill("lr = 0.1, 0.01\nseed")
    expect(page.locator("#error-array_tasks")).to_contain_text("Line 2")
    array.get_by_label("Parameters").fill("lr = 0.1, 0.01\nseed = 0..1")
    array.get_by_label("Tasks at a time").fill("2")
    expect(page.locator("#array-preview")).to_have_text(re.compile(r"4 tasks, first: lr=0.1 seed=0, .*at most 2 at"))
    expect(page.locator("#error-array_tasks")).to_be_empty()
    page.get_by_role("searchbox", name="Search sessions").fill("fore-3")
    expect(page.locator(".dependency-list label:visible")).to_have_count(1)
    open_step(page, "Review")
    expect(page.locator("#review")).to_contain_text("4 tasks")
    button = page.get_by_role("button", name="Start 4 tasks")
    button.click()
    page.get_by_role("dialog", name="No data folder").get_by_role("button", name="Launch").click()
    page.wait_for_url("**/arrays/*/")
    expect(page.get_by_text("with 4 tasks")).to_be_visible()
