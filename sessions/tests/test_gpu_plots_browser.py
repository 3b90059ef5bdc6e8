"""The plots of a session's page in a real browser."""

import math
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from resources.units import GIB
from sessions.models import Session, SessionUsage
from tests.browser import chromium
from tests.factories import make_host, run_session
from tests.live import LiveServer, login_cookie, serving

SLOW_MS = 30_000  # longer than anything takes on a busy machine
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The platform on the test's database."""
    with serving(tmp_path_factory.mktemp("live") / "server.log") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser."""
    with pytest.MonkeyPatch.context() as patch, chromium() as running:
        # Playwright keeps an event loop in this thread, where Django then expects no queries.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield running


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


def opened(browser: Browser, server: LiveServer, session: Session, errors: list[str], width: int, scheme: str) -> Page:
    context = browser.new_context(
        base_url=server.url,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    context.add_cookies([login_cookie(session.owner, server.url)])  # type: ignore[list-item]
    page = context.new_page()
    expect.set_options(timeout=SLOW_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"/sessions/{session.pk}/")
    return page


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_memory_and_utilisation_are_drawn_within_the_page(
    browser: Browser, server: LiveServer, session: Session, width: int, scheme: str
) -> None:
    record_an_hour(session)
    errors: list[str] = []
    page = opened(browser, server, session, errors, width, scheme)
    expect(page.locator("#gpu-plots .uplot")).to_have_count(2)
    expect(page.locator("[data-series=memory] [data-now]")).to_contain_text("3.50 of 4.00 GiB")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("localStorage.setItem('gpuplatform.theme', 'dark'); dispatchEvent(new Event('storage'))")
    expect(page.locator("#gpu-plots .uplot")).to_have_count(2)
    assert errors == []
    page.context.close()


def test_nothing_is_drawn_before_anything_is_recorded(browser: Browser, server: LiveServer, session: Session) -> None:
    errors: list[str] = []
    page = opened(browser, server, session, errors, 1440, "light")
    page.wait_for_load_state("networkidle")
    expect(page.locator("#gpu-plots")).to_be_hidden()
    assert errors == []
    page.context.close()
