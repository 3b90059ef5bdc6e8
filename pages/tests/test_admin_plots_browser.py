"""What groups and hosts lend over time in the administration, in a real browser: plots, keyboard and a table."""

from datetime import timedelta

import pytest
from playwright.sync_api import Browser, expect

from accounts.models import User
from resources import clock
from resources.models import Host
from sessions.models import Session, SessionEvent
from tests.browser import signed_in
from tests.factories import make_group, make_host, make_session, make_user, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def admin() -> User:
    """A superadmin of a group of two GPUs, of which one is held for a day and a half."""
    host = make_host(group=make_group(name="first"), gpus=2)
    session = run_session(host=host, fgpu=host.group.gpu_capacity)
    waiting = make_session(resource_group=host.group)
    begun = clock.now() - timedelta(hours=36)
    Session.objects.filter(pk__in=(session.pk, waiting.pk)).update(created_at=begun)
    session.events.update(at=begun)
    SessionEvent.objects.create(session=waiting, at=begun, new_status="PENDING", reason="SUBMITTED")
    make_host(group=make_group(name="second"), gpus=1)
    return make_user(is_superuser=True, is_staff=True)


@pytest.mark.parametrize(
    ("scheme", "locale", "width", "week", "table", "said"),
    [
        ("light", "en", 1440, "Last week", "As a table", ("1 of 2 on average", "1 on average")),
        ("dark", "ko", 390, "지난주", "표로 보기", ("평균 2개 중 1개", "평균 1개")),
    ],
)
def test_what_a_group_lends_is_plotted(
    browser: Browser,
    server: LiveServer,
    admin: User,
    scheme: str,
    locale: str,
    width: int,
    week: str,
    table: str,
    said: tuple[str, str],
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "locale": locale}
    with signed_in(browser, server, admin, **options) as context:
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto("/admin/")
        card = page.locator("#usage")
        expect(card.locator("canvas")).to_have_count(2)
        held = card.locator("[data-plot=held_gpus]")
        expect(card.locator("[data-now]")).to_have_text(said)
        held.locator("[data-area]").press("Home")
        expect(held.locator("[data-area]")).to_have_attribute("aria-valuenow", "0")
        card.get_by_text(table).click()
        expect(card.locator("tbody tr")).to_have_count(96)
        card.get_by_role("button", name=week).click()
        expect(card.locator("tbody tr")).to_have_count(84)
        card.get_by_text(table).click()
        card.get_by_role("combobox").select_option("second")
        expect(held.locator("[data-now]")).not_to_have_text(said[0])
        assert problems == []


@pytest.mark.parametrize(
    ("page_of", "said", "link"),
    [
        ("host", ("1 of 2 on average", "1 of 16 on average"), "Sessions"),
        ("resourcegroup", ("1 of 2 on average", "1 on average"), "Hosts"),
    ],
)
def test_a_row_of_the_administration_has_its_own_plots(
    browser: Browser, server: LiveServer, admin: User, page_of: str, said: tuple[str, str], link: str
) -> None:
    host = Host.objects.get(group__name="first")
    row = host if page_of == "host" else host.group
    with signed_in(browser, server, admin) as context:
        page = context.new_page()
        page.goto(f"/admin/resources/{page_of}/{row.pk}/change/")
        card = page.locator("#usage")
        expect(card.locator("canvas")).to_have_count(2)
        expect(card.locator("[data-now]")).to_have_text(said)
        card.locator("[data-area]").first.press("Home")
        expect(card.locator("[data-area]").first).to_have_attribute("aria-valuenow", "0")
        card.get_by_text("As a table").click()
        expect(card.locator("tbody tr").first.locator("td")).to_have_text(said)
        card.get_by_role("link", name=link).click()
        expect(page.get_by_text(host.name, exact=True).first).to_be_visible()
