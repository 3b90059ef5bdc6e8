"""WCAG 2.2 AA and more on every page, by axe-core: themes, widths, sizes of text; and no page wider than its window."""

from collections.abc import Iterator
from itertools import cycle, repeat

import pytest
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext

from tests.axe import AXE, LABELS, LARGE_TEXT, STYLE_REFUSED, VIEWS, check, faults, text_of
from tests.browser import allow_errors, signed_in, watched_context
from tests.live import LiveServer
from tests.page_world import KINDS, PageWorld, make_page_world

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MIN_PAGES = 150  # found by their URL patterns: so many cannot drop out because the rows do not fit them any more
MIN_SEARCHES = 30
SEARCHES_ITSELF = """() => {
  const field = document.querySelector("main input[type=search][name=q], #changelist-search input[name=q]");
  return Boolean(field?.form && new URL(field.form.action).pathname === location.pathname);
}"""


@pytest.fixture(scope="module")
def world(module_db: None, tmp_path_factory: pytest.TempPathFactory) -> PageWorld:
    return make_page_world(tmp_path_factory.mktemp("folders"))


@pytest.fixture(scope="module")
def context(browser: Browser, server: LiveServer, world: PageWorld) -> Iterator[BrowserContext]:
    with signed_in(browser, server, world.admin) as made:
        allow_errors(made, STYLE_REFUSED)
        made.add_init_script(f"if (self === top) {{ {AXE} }}")
        yield made


@pytest.fixture(scope="module")
def pages(context: BrowserContext, world: PageWorld) -> dict[str, str]:
    return world.pages(context)


def test_each_kind_of_page_is_accessible_and_fits(context: BrowserContext, pages: dict[str, str]) -> None:
    assert len(pages) >= MIN_PAGES
    # Each in one of the views; the campaign looks at all pages in all views.
    chosen = {name: path for name, path in pages.items() if name in KINDS}
    assert chosen.keys() == KINDS
    found = check(context, chosen, cycle([view] for view in VIEWS))
    assert not found, text_of(found)


def test_signing_in_is_accessible(browser: Browser, server: LiveServer) -> None:
    with watched_context(browser, server.url) as context:
        allow_errors(context, STYLE_REFUSED)
        context.add_init_script(AXE)
        found = check(context, {"sign-in": "/accounts/sign-in/"}, [(*VIEWS, LARGE_TEXT)])
    assert not found, text_of(found)


@pytest.mark.long(minutes=3)
def test_a_search_without_result_leads_back(context: BrowserContext, pages: dict[str, str]) -> None:
    page = context.new_page()
    silent, searched = [], 0
    for path in pages.values():
        if "?" in path or ' name="q"' not in context.request.get(path).text():  # most pages need not be drawn
            continue
        page.goto(f"{path}?q=nothing-has-this-name", wait_until="domcontentloaded")
        if not page.evaluate(SEARCHES_ITSELF):
            continue
        searched += 1
        if not page.locator("main, #content").locator(".empty, .empty-row").locator("a, button").count():
            silent.append(path)
    assert searched >= MIN_SEARCHES
    assert silent == []


@pytest.mark.long(minutes=15)
def test_every_page_is_accessible_in_every_view(context: BrowserContext, pages: dict[str, str]) -> None:
    found = check(context, pages, repeat((*VIEWS, LARGE_TEXT)))
    assert not found, text_of(found)


@pytest.mark.long(minutes=3)
def test_korean_names_hold_what_stands_on_controls(
    browser: Browser, server: LiveServer, world: PageWorld, pages: dict[str, str]
) -> None:
    found: dict[str, list[str]] = {}
    with signed_in(browser, server, world.admin) as context:
        context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": "ko", "url": server.url}])
        context.add_init_script(f"if (self === top) {{ {AXE} }}")
        page = context.new_page()
        for name, path in pages.items():
            page.goto(path)
            assert path == pages.get("api-docs") or page.locator("html").get_attribute("lang") == "ko"
            if problems := faults(page, name, LABELS):
                found[f"{name} {path}"] = problems
        assert not found, text_of(found)
