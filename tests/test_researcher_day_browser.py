"""A day of a researcher in a real browser, in few clicks and fields: unblock a session, share an app, get a token."""

import re
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from accounts.models import User
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import fresh, start_session
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.browser import signed_in
from tests.factories import make_endpoint, make_group, make_host, make_session, make_user, run_session
from tests.live import LiveServer
from tests.steps import Steps

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MOST_STEPS: Final = 13


@pytest.fixture
def researcher() -> User:
    return make_user(email="mina@example.org")


@pytest.fixture
def holding(researcher: User) -> Session:
    """A session that holds most of the only GPU."""
    host = make_host(group=make_group(name="lab", open_to_all=True), gpus=1)
    return run_session(owner=researcher, host=host, name="trains", fgpu=1500)


@pytest.fixture
def blocked(researcher: User, holding: Session) -> Session:
    """Another, which waits for it."""
    waiting = make_session(owner=researcher, resource_group=holding.resource_group, name="evaluates", fgpu=1000)
    run_pass()
    return waiting


def test_a_researchers_day_takes_few_steps(
    browser: Browser, server: LiveServer, researcher: User, holding: Session, blocked: Session
) -> None:
    with signed_in(browser, server, researcher) as context:
        steps = Steps(context.new_page())
        page, dialog = steps.page, steps.page.get_by_role("dialog")
        page.goto("/")
        steps.go("Sessions")
        row = page.locator("tr", has=page.locator(".td-name", has_text="evaluates"))
        expect(row).to_contain_text("Waits for your own session")
        expect(row).to_contain_text("then this one starts at once")
        steps.click(row.get_by_role("link", name="Park trains"))
        steps.click(dialog.get_by_role("button", name="Park"))
        expect(dialog).to_be_hidden()
        fresh(holding).move_to(Status.PARKED, Reason.PARKED)
        run_pass()
        start_session(FaultInjectingRuntime(), blocked.pk, 1)
        expect(row).to_contain_text("Running")

        make_endpoint(fresh(blocked), app="jupyterlab", title="JupyterLab")
        steps.click(row.get_by_role("link", name="Apps of evaluates"))
        steps.click(dialog.get_by_text("Share by link"))
        expect(dialog).to_contain_text("all else that gives a shell run their commands in your session")
        steps.click(dialog.get_by_role("button", name="Make a link"))
        expect(dialog.get_by_label("Share link")).to_have_value(re.compile("/apps/shared/"))
        page.keyboard.press("Escape")
        steps.count += 1

        steps.click(page.get_by_role("link", name="Parked"))
        expect(page.get_by_role("link", name="Parked")).to_have_attribute("aria-current", "page")
        steps.click(page.get_by_role("link", name="Resume trains"))
        steps.click(dialog.get_by_role("button", name="Resume"))
        expect(dialog).to_be_hidden()

        steps.click(page.get_by_role("link", name="Waiting"))
        parked = page.locator("tr", has=page.locator(".td-name", has_text="trains"))
        expect(parked).to_contain_text("Waits for your own session")
        steps.click(parked.get_by_role("link", name="End evaluates"))
        steps.click(dialog.get_by_role("button", name="Terminate"))
        expect(dialog).to_be_hidden()
        fresh(blocked).move_to(Status.TERMINATED, Reason.USER_REQUEST)
        run_pass()
        expect(page.locator("[data-count=waiting]")).to_have_text("0")
        assert fresh(holding).status == Status.SCHEDULED
    assert steps.count <= MOST_STEPS
