"""Pictures of every page, for people to look at: `make screenshots` puts them into var/screenshots."""

from itertools import islice
from pathlib import Path
from typing import Final

import pytest
from django.conf import settings
from playwright.sync_api import Browser

from bench.sizes import size
from tests.browser import signed_in
from tests.live import LiveServer
from tests.page_world import PageWorld, make_page_world

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FOLDER: Final = settings.BASE_DIR / "var/screenshots"
WIDTHS: Final = size((390, 1024, 1440, 2560), (1024,))
THEMES: Final = size(("light", "dark"), ("light",))
MAX_PAGES: Final = size(None, 2)  # of each language
LANGUAGES: Final = ("en", "ko")


@pytest.fixture(scope="module")
def world(module_db: None, tmp_path_factory: pytest.TempPathFactory) -> PageWorld:
    return make_page_world(tmp_path_factory.mktemp("folders"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_take(browser: Browser, server: LiveServer, world: PageWorld, language: str) -> None:
    with signed_in(browser, server, world.admin, locale=language) as context:
        context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": language, "url": server.url}])
        page = context.new_page()
        for name, path in islice(world.pages(context).items(), MAX_PAGES):
            page.goto(path)
            page.wait_for_load_state("networkidle") if path.startswith("/api/") else None
            for theme in THEMES:
                page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                for width in WIDTHS:
                    page.set_viewport_size({"width": width, "height": 900})
                    page.screenshot(path=target(language, name, width, theme), full_page=path != "/api/docs/")


def target(language: str, name: str, width: int, theme: str) -> Path:
    return FOLDER / language / f"{name}-{width}-{theme}.png"
