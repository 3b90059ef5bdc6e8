"""The pictures of the help: `make help-pictures` puts them into docs/images."""

from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Browser, FloatRect, expect

from tests.browser import signed_in
from tests.live import LiveServer
from tests.page_world import make_page_world

VIEWPORT = {"width": 1000, "height": 1400}
BESIDE_NAVIGATION: FloatRect = {"x": 100, "y": 30, "width": 900, "height": 540}


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_take(browser: Browser, server: LiveServer, tmp_path: Path) -> None:
    world = make_page_world(tmp_path)
    session = world.arguments["session_id"]
    with signed_in(browser, server, world.user, viewport=VIEWPORT, reduced_motion="reduce") as context:
        page = context.new_page()
        page.goto("/sessions/?sort=name")
        box = page.locator("#sessions").bounding_box()
        assert box
        page.screenshot(path=target("sessions"), clip=FloatRect(**box) | {"height": 410})
        page.goto("/sessions/launch/resources/")
        page.locator(".preset", has_text="medium").click()
        expect(page.locator("#gpu-share")).to_be_visible()
        page.locator(".launch-page:visible > .card").first.screenshot(path=target("launch"))
        page.goto(f"/sessions/{session}/")
        expect(page.locator("canvas").first).to_be_visible()
        page.screenshot(path=target("session"), clip=BESIDE_NAVIGATION)
        page.goto(f"/sessions/{session}/apps/")
        page.screenshot(path=target("apps"), clip=BESIDE_NAVIGATION)
    with signed_in(browser, server, world.admin, viewport=VIEWPORT) as context:
        page = context.new_page()
        page.goto(f"/folders/{world.arguments['folder_id']}/")
        page.screenshot(path=target("folder"), clip=BESIDE_NAVIGATION | {"height": 380})


def target(name: str) -> Path:
    return settings.BASE_DIR / f"docs/images/{name}.png"
