"""Advice, estimates and the simulation in a real browser."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import DependencyKind, Kind, Status
from sessions.models import Session
from tests.browser import signed_in
from tests.factories import make_host, make_image, make_session, make_user, run_session
from tests.live import LiveServer
from tests.wizard import launch_without_folder, open_step

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

TOKYO = timedelta(hours=9)


@pytest.fixture
def owner() -> User:
    return make_user(is_superuser=True)


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User) -> Iterator[Page]:
    """A tab in Tokyo in which the owner is signed in; it must log no error."""
    with signed_in(browser, server, owner, timezone_id="Asia/Tokyo") as context:
        yield context.new_page()


@pytest.fixture
def host() -> Host:
    """A host with one GPU of 2 fGPU, of which 1.5 are in use for two hours."""
    make_image()
    host = make_host(gpus=1)
    run_session(host=host, fgpu=1500, time_limit=timedelta(hours=2))
    return host


def test_the_launch_pages_advice_follows_the_amounts(page: Page, host: Host) -> None:
    page.goto("/sessions/launch/resources/")
    advice = page.locator("#advice")
    expect(advice).to_contain_text("Starts now")
    page.fill("#id_fgpu", "1")
    expect(advice).to_contain_text(re.compile(r"Starts .+ to .+, \d of 10"))
    expect(advice).to_contain_text("because 1 fGPU falls free when 1 session reaches its time limit")
    page.get_by_role("button", name="now with 0.5 fGPU").click()
    expect(advice).to_contain_text("Starts now")
    expect(page.locator("#id_fgpu")).to_have_value("0.5")
    page.fill("#id_fgpu", "5")
    expect(page.locator("#error-fgpu")).to_contain_text("The largest host of this group has 2 fGPU.")
    assert not Session.objects.filter(status=Status.PENDING).exists()


def test_advanced_launch_times_use_the_browsers_zone(page: Page, host: Host) -> None:
    first = make_session(owner=User.objects.get(is_superuser=True), resource_group=host.group, name="first")
    page.goto("/sessions/launch/resources/")
    page.click("#advanced > summary")
    page.fill("#id_command", "python train.py")
    page.fill("#id_time_limit", "90m")
    start = (timezone.now() + timedelta(days=2)).replace(second=0, microsecond=0)
    page.fill("#id_not_before", f"{start + TOKYO:%Y-%m-%dT%H:%M}")
    page.get_by_label(first.name).select_option(label="once it has ended")
    expect(page.locator("#advice")).to_contain_text("what it depends on")
    open_step(page, "Environment")
    page.fill("#id_name", "trained")
    launch_without_folder(page)
    expect(page.locator("body")).to_contain_text("Launched trained.")
    session = Session.objects.get(name="trained")
    assert (session.kind, session.command) == (Kind.BATCH, "python train.py")
    assert (session.time_limit, session.not_before) == (timedelta(minutes=90), start)
    assert list(session.dependencies.values_list("to_session", "kind")) == [(first.pk, DependencyKind.AFTER_ANY)]


def test_an_invalid_form_keeps_the_typed_start(page: Page, host: Host) -> None:
    page.goto("/sessions/launch/resources/")
    page.click("#advanced > summary")
    local = f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%dT%H:%M}"
    page.fill("#id_not_before", local)
    open_step(page, "Environment")
    page.fill("#id_name", "x")
    expect(page.locator("#advice")).to_contain_text("4 to 64 characters")
    page.click("#launch-button")
    expect(page.locator("#launch-errors")).to_be_visible()
    open_step(page, "Resources")
    expect(page.locator("#id_not_before")).to_have_value(local)


def test_the_estimate_appears_in_the_open_list_and_page(page: Page, host: Host, owner: User) -> None:
    waiting = make_session(owner=owner, resource_group=host.group, fgpu=1000)
    page.goto("/sessions/")
    expect(page.locator("#live-state")).to_contain_text("Live")
    run_pass()
    row = page.locator(f"#session-{waiting.pk}")
    expect(row).to_contain_text(re.compile(r"starts .+ to .+, \d of 10"))
    waiting.refresh_from_db()
    assert waiting.eta
    latest = row.locator(".eta time").last
    moment = datetime.fromisoformat(latest.get_attribute("datetime") or "")
    expect(latest).to_contain_text(f"{(moment + TOKYO):%M}")
    page.goto(f"/sessions/{waiting.pk}/")
    expect(page.locator(".session-reason")).to_contain_text("1 fGPU falls free when 1 session reaches its time limit")


def test_the_simulation_draws_both_replays(page: Page, host: Host) -> None:
    page.goto("/admin/simulation/?days=5&add_hosts=1")
    expect(page.locator("#summary")).to_contain_text("1 more host")
    expect(page.locator("#plot-waiting canvas")).to_be_visible()
    expect(page.locator("#plot-in-use canvas")).to_be_visible()
