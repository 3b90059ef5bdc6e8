"""A day of an administrator in a real browser, in few clicks and fields: invite, unblock, announce, look at usage."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from accounts.models import AccountInvitation
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session
from resources.amounts.units import GIB
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import Status
from sessions.models import Session
from tests.browser import signed_in
from tests.factories import make_group, make_host, make_policy, make_session, make_user, run_session
from tests.live import LiveServer
from tests.steps import Steps

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MOST_STEPS: Final = 18  # 23 before users had a page, the queue reasons and limits what is used of them


@pytest.fixture
def blocked() -> Session:
    """A session that waits, beside another, since its owner's policy allows no more."""
    mina = make_user(email="mina@example.org", policy=make_policy(name="students", cpu=2, memory=64 * GIB))
    host = make_host(group=make_group(name="lab", open_to_all=True), cpu=8, memory=64 * GIB)
    run_session(owner=mina, host=host, cpu=2, name="trains")
    make_session(resource_group=host.group, cpu=8, name="large")
    waiting = make_session(owner=mina, resource_group=host.group, cpu=1, name="evaluates")
    run_pass()
    return waiting


def test_an_administrators_day_takes_few_steps(browser: Browser, server: LiveServer, blocked: Session) -> None:
    with signed_in(browser, server, make_user(email="ada@example.org", is_superuser=True)) as context:
        steps = Steps(context.new_page())
        page = steps.page
        page.goto("/")
        steps.go("Administration")
        steps.link("Add to Invitations")
        steps.fill("E-mail addresses:", "new@example.org")
        steps.choose("Policy:", "students")
        steps.save()
        steps.go("Administration")
        queue = page.get_by_role("region", name="Queue")
        expect(queue).to_contain_text("2 waiting")
        expect(queue.get_by_role("listitem").filter(has_text="evaluates")).to_contain_text("Your policy")
        steps.click(queue.get_by_role("link", name="mina@example.org"))
        expect(page.get_by_role("row", name="CPU cores")).to_contain_text("2 of 2 reached")
        steps.link("Change CPU cores of the policy students")
        expect(page.locator(".field-cpu")).to_contain_text("at the limit: 1")
        steps.fill("CPU cores:", "4")
        steps.save()
        run_pass()
        start_session(FaultInjectingRuntime(), blocked.pk, 1)
        assert Session.objects.get(pk=blocked.pk).status == Status.RUNNING
        steps.go("Administration")
        expect(queue).to_contain_text("1 waiting")
        steps.link("Add to Announcements")
        end = datetime.now(UTC) + timedelta(days=1)
        steps.fill("Text:", "Maintenance tonight from 20:00")
        steps.choose("Level:", "warning")
        steps.fill("Shown until Date", f"{end:%Y-%m-%d}")
        steps.fill("Shown until Time (UTC)", "23:00")
        steps.save()
        steps.go("Usage")
        expect(page.get_by_text("Maintenance tonight from 20:00")).to_be_visible()
        expect(page.get_by_role("row", name="mina@example.org")).to_be_visible()
    assert AccountInvitation.objects.get().policy == blocked.owner.policy
    assert steps.count <= MOST_STEPS
