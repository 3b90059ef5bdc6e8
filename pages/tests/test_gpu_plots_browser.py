"""The plots of a session's page in a real browser."""

import math
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from resources.units import GIB
from sessions.models import Session, SessionUsage
from tests.browser import signed_in
from tests.factories import make_host, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


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
            gpu_memory=min(3.5, n / 60) * GIB,
            gpu_utilisation=round(45 + 40 * math.sin(n / 20)),
        )
        for n in range(360)
    )


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_memory_and_utilisation_are_drawn_within_the_page(
    browser: Browser, server: LiveServer, session: Session, width: int, scheme: str
) -> None:
    record_an_hour(session)
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with signed_in(browser, server, session.owner, **options) as context:
        page = context.new_page()
        page.goto(f"/sessions/{session.pk}/")
        expect(page.locator("#gpu-plots .uplot")).to_have_count(2)
        expect(page.locator("[data-series=memory] [data-now]")).to_contain_text("3.50 of 4.00 GiB")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("localStorage.setItem('gpuplatform.theme', 'dark'); dispatchEvent(new Event('storage'))")
        expect(page.locator("#gpu-plots .uplot")).to_have_count(2)


def test_nothing_is_drawn_before_anything_is_recorded(browser: Browser, server: LiveServer, session: Session) -> None:
    with signed_in(browser, server, session.owner) as context:
        page = context.new_page()
        page.goto(f"/sessions/{session.pk}/")
        page.wait_for_load_state("networkidle")
        expect(page.locator("#gpu-plots")).to_be_hidden()
