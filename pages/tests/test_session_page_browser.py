"""The page of a session in a real browser: plots, logs and dialogs."""

import math
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from resources.amounts.units import GIB
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionUsage
from tests.browser import signed_in
from tests.factories import make_host, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

PLOTS = 5
LOG = "".join(f"step {number}\n" for number in range(200)) + "\x1b[31mloss\x1b[0m is high\n"


@pytest.fixture
def session() -> Session:
    """A session with half a GPU, running for an hour, with nothing recorded yet."""
    session = run_session(host=make_host(gpus=1), fgpu=1000)
    session.started_at = timezone.now() - timedelta(hours=1)
    session.save(update_fields=["started_at"])
    return session


def record_an_hour(session: Session) -> None:
    begun = session.started_at
    assert begun is not None
    SessionUsage.objects.bulk_create(
        SessionUsage(
            session=session,
            at=begun + timedelta(seconds=10 * n),
            cpu_milli=500,
            memory=GIB // 2,
            received=round(1e6 * (1 + math.cos(n / 30))),
            sent=1000,
            gpu_memory=min(3.5, n / 60) * GIB,
            gpu_utilisation=round(25 + 20 * math.sin(n / 20)) if n < 359 else 40,
        )
        for n in range(360)
    )


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_use_is_plotted_with_one_cursor_within_the_page(
    browser: Browser, server: LiveServer, session: Session, width: int, scheme: str
) -> None:
    record_an_hour(session)
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with signed_in(browser, server, session.owner, **options) as context:
        page = context.new_page()
        page.goto(f"/sessions/{session.pk}/")
        expect(page.locator("#usage .uplot")).to_have_count(PLOTS)
        now = {name: page.locator(f"[data-plot={name}] [data-now]") for name in ("gpu", "gpu_memory", "cpu", "network")}
        expect(now["gpu"]).to_have_text("80 % of your share, 40 % of the GPU")
        expect(now["gpu_memory"]).to_have_text("3.5 GiB of your 4 GiB; the GPU has 8 GiB")
        expect(now["cpu"]).to_have_text("0.5 of 1 core")
        page.locator("[data-plot=cpu] .u-over").hover()
        for each in now.values():  # the others follow
            expect(each).to_contain_text(": ")
        page.mouse.move(0, 0)
        expect(now["cpu"]).to_have_text("0.5 of 1 core")
        slider = page.get_by_role("slider", name="CPU over time")
        slider.press("ArrowLeft")
        for each in now.values():
            expect(each).to_contain_text(": ")
        slider.press("Escape")
        expect(now["cpu"]).to_have_text("0.5 of 1 core")
        page.get_by_role("button", name="Whole life").click()
        expect(page.get_by_role("button", name="Whole life")).to_have_attribute("aria-pressed", "true")
        page.evaluate("localStorage.setItem('gpuplatform.theme', 'dark'); dispatchEvent(new Event('storage'))")
        expect(page.locator("#usage .uplot")).to_have_count(PLOTS)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_plots_survive_live_updates_and_the_end(browser: Browser, server: LiveServer, session: Session) -> None:
    with signed_in(browser, server, session.owner) as context:
        page = context.new_page()
        page.goto(f"/sessions/{session.pk}/")
        expect(page.get_by_text("The first figures come within half a minute")).to_be_visible()
        record_an_hour(session)
        page.get_by_role("button", name="Whole life").click()
        expect(page.locator("#usage .uplot")).to_have_count(PLOTS)
        page.get_by_role("button", name="Last hour").click()
        page.get_by_role("link", name=f"Rename {session.name}").click()
        page.get_by_role("dialog").get_by_label("Name").fill("called-anew")
        page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("called-anew")
        expect(page.locator("#usage .uplot")).to_have_count(PLOTS)
        session.refresh_from_db()
        session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY, fields={"log_tail": LOG, "exit_code": 137})
        expect(page.get_by_role("link", name="Launch again with 2 GiB")).to_be_visible()
        expect(page.get_by_role("button", name="Whole life")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#log-text")).to_contain_text("loss is high")


def test_logs_are_searched_wrapped_and_coloured(browser: Browser, server: LiveServer, session: Session) -> None:
    session.move_to(Status.ERROR, Reason.CONTAINER_EXITED, fields={"log_tail": LOG, "exit_code": 1})
    with signed_in(browser, server, session.owner) as context:
        page = context.new_page()
        page.goto(f"/sessions/{session.pk}/logs/")
        expect(page.locator("#log-text .ansi-1")).to_have_text("loss")
        assert page.locator("#log-text").evaluate("it => it.scrollTop + it.clientHeight >= it.scrollHeight - 24")
        search = page.get_by_role("searchbox", name="Search the log")
        search.fill("STEP 19")
        found = page.locator("[data-log-found]")
        expect(found).to_have_text("11 of 11")  # 19 and 190 to 199, the newest first
        search.press("Enter")
        expect(found).to_have_text("1 of 11")
        assert page.evaluate("CSS.highlights.get('log-match').size") == 11
        search.fill("high")
        expect(found).to_have_text("1 of 1")  # over the border of a colour, too
        search.fill("loss is")
        expect(found).to_have_text("1 of 1")
        search.fill("nowhere")
        expect(found).to_have_text("Not found")
        page.get_by_label("Wrap").uncheck()
        page.reload()
        expect(page.get_by_label("Wrap")).not_to_be_checked()
