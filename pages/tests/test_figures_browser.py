"""What a deployment serves over time, in a real browser: plots of an hour, a day and a week, and a table of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, expect

from deployments import figures
from deployments.models import Deployment
from deployments.tests.making import make_deployment
from deployments.tests.serving import make_replica
from proxy.authorization.control_plane import DURATION_BOUNDS, ServiceFigures
from resources import clock
from sessions.notify import proxies_redis
from tests.browser import signed_in
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@contextmanager
def past(minutes: int) -> Iterator[None]:
    """Have it be so many minutes earlier until the block ends."""
    at = clock.now() - timedelta(minutes=minutes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: at)
        yield


def serve(deployment: Deployment, minutes_ago: int, requests: int) -> None:
    """Have so many requests have been served then."""
    durations = [0] * len(DURATION_BOUNDS) + [0]
    durations[4] = requests
    with past(minutes_ago):
        served = ServiceFigures(
            deployment=deployment.pk,
            session="r",
            requests=requests,
            errors=requests // 10,
            outstanding=requests // 5,
            durations=durations,
        )
        figures.store("p", [served])


@pytest.mark.parametrize(
    ("scheme", "locale", "width", "week", "table"),
    [("light", "en", 1440, "Last week", "As a table"), ("dark", "ko", 390, "지난주", "표로 보기")],
)
def test_figures_are_plotted_and_told(
    browser: Browser, server: LiveServer, scheme: str, locale: str, width: int, week: str, table: str
) -> None:
    deployment = make_deployment()
    with past(10):  # before the minute that is shown, of which a replica younger than it has held a part
        make_replica(deployment)
    for minutes in range(1, 60, 3):
        serve(deployment, minutes, 40 + minutes * 7 % 30)
    serve(deployment, 3 * 24 * 60, 7200)
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "locale": locale}
    with signed_in(browser, server, deployment.owner, **options) as context:
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"/deployments/{deployment.pk}/")
        card = page.locator("#usage")
        expect(card.locator("canvas")).to_have_count(8)
        now = card.locator("[data-plot=replicas] [data-now]")
        expect(now).to_contain_text(re.compile(r"^1 on average$|^평균 1개$"))
        card.get_by_role("button", name=week).click()
        card.get_by_text(table).click()
        rows = card.locator("[data-usage-table] tr")
        expect(rows).to_have_count(84)
        expect(card.locator("[data-usage-table]")).to_contain_text(re.compile(r"1 requests a second|초당 요청 1"))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert problems == []
    for key in proxies_redis().keys(f"gp.serving:{deployment.pk}:*"):
        proxies_redis().delete(key)
