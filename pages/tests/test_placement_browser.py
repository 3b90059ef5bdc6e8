"""Room that is said before a button is pressed, in a real browser, on a narrow screen too."""

import pytest
from playwright.sync_api import Browser, expect

from deployments import services
from deployments.tests.making import revision_request
from deployments.tests.rolling import our_deployment
from tests.browser import signed_in
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.mark.parametrize(
    ("scheme", "locale", "width", "room"),
    [("light", "en", 1440, "There is room now"), ("dark", "ko", 390, "지금 자리가 있습니다")],
)
def test_room_is_said_before_buttons_are_pressed(
    browser: Browser, server: LiveServer, scheme: str, locale: str, width: int, room: str
) -> None:
    deployment = our_deployment(1)
    services.new_revision(deployment, revision_request(), actor=deployment.owner, activates=False)
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "locale": locale}
    with signed_in(browser, server, deployment.owner, **options) as context:
        page = context.new_page()
        page.goto(f"/deployments/{deployment.pk}/")
        page.locator("#replicas-wanted").fill("3")
        expect(page.locator("#scale-placement")).to_contain_text(room)
        page.locator("#about-revision-2 summary").click()
        expect(page.locator("#placement-2")).to_contain_text(room)
        page.evaluate("htmx.trigger('#live', 'live:refresh')")
        page.wait_for_load_state("networkidle")
        expect(page.locator("#placement-2")).to_contain_text(room)
        expect(page.locator("#scale-placement")).to_contain_text(room)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto(f"/deployments/{deployment.pk}/revisions/new/")
        expect(page.locator("#placement")).to_contain_text(room)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
