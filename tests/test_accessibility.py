"""WCAG 2.2 AA on every page, by axe-core: both themes, wide and narrow; and no page wider than its window."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle, repeat
from typing import Any, Final, Literal

import pytest
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser import allow_errors, signed_in, watched_context
from tests.live import LiveServer
from tests.page_world import PageWorld, make_page_world
from tests.wait import until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

AXE: Final = (settings.BASE_DIR / "node_modules/axe-core/axe.min.js").read_text()
RUN: Final = """runOnly => axe.run(document, {
  runOnly, rules: {"label-content-name-mismatch": {enabled: true}}, resultTypes: ["violations"], preload: false,
})"""  # the rule is for who speaks what stands on a control (2.5.3 Label in Name)
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LABELS: Final = {"type": "rule", "values": ["label-content-name-mismatch"]}  # all that a language can break
COLOURS: Final = {"type": "rule", "values": ["color-contrast"]}  # all that can differ between views of one width
View = tuple[Literal["light", "dark"], int]  # theme, width in CSS pixels
ALL_VIEWS: Final[tuple[View, ...]] = (("light", 1440), ("dark", 320), ("dark", 1440))
# One page of each kind, each in one of two views; the campaign looks at all pages in all views.
SHORT: Final = frozenset(
    [
        "home",
        "sessions-list",
        "sessions-launch",
        "sessions-detail",
        "sessions-terminate",
        "sessions-terminal",
        "folders-list",
        "folders-browse",
        "endpoints-apps",
        "overview-hosts",
        "overview-environments",
        "accounts-profile",
        "help-index",
        "help-page",
        "api-docs",
        "admin-index",
        "admin-user",
        "overview-user",
        "admin-accounts-resourcepolicy-change",
        "admin-notifications-announcement-add",
        "admin-resources-resourcegroup-change",
    ]
)
WIDTHS: Final = (320, 390, 600, 720, 768, 1024, 1440)  # 720 and less also stand for wider windows at 200 %
# What of a page cannot be reached without scrolling it sideways: all of it, or controls outside of parts that scroll.
OUTSIDE: Final = """() => {
  const scrolls = (element) => /auto|scroll/.test(getComputedStyle(element).overflowX);
  const isOutside = (element) => {
    const { left, right, width, height } = element.getBoundingClientRect();
    const isShown = width && height && element.checkVisibility({ visibilityProperty: true });
    if (!isShown || (left >= -1 && right <= innerWidth + 1)) return false;
    for (let parent = element.parentElement; parent; parent = parent.parentElement) if (scrolls(parent)) return false;
    return !element.closest(".visually-hidden, .visually-hidden-focusable, .skip-to-content-link");
  };
  const found = [...document.querySelectorAll("a, button, input, select, textarea, summary")].filter(isOutside);
  const { scrollWidth } = document.documentElement;
  const texts = found.map((each) => each.outerHTML.slice(0, 120));
  return scrollWidth > innerWidth ? [`it is ${scrollWidth} px wide`, ...texts] : texts;
}"""
STYLE_REFUSED: Final = "Content Security Policy directive 'style-src"  # axe writes styles, which our policy refuses
# What a page is about that nobody can see, or that another program draws.
NOT_OURS: Final = {"sessions-terminal": {"color-contrast"}}  # its screen, whose colours the shell's programs choose


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


def faults(page: Page, name: str, rules: Any) -> list[str]:
    """Return what axe finds."""
    found: dict[str, Any] = page.evaluate(RUN, rules)
    return [
        f"{each['id']}: {node['html'][:160]} ({(node['failureSummary'] or '').splitlines()[-1].strip()})"
        for each in found["violations"]
        if each["id"] not in NOT_OURS.get(name, ())
        for node in each["nodes"][:3]
    ]


def check(context: BrowserContext, pages: dict[str, str], views: Iterable[Sequence[View]]) -> dict[str, list[str]]:
    """Return the faults of each page in its views, by page, theme and width."""
    found: dict[str, list[str]] = {}
    page = context.new_page()
    for (name, path), its_views in zip(pages.items(), views, strict=False):
        page.goto(path)
        widths: set[int] = set()
        for theme, width in its_views:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
            if problems := faults(page, name, COLOURS if width in widths else RULES):
                found[f"{name} {path} {theme} {width}"] = problems
            widths.add(width)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            with suppress(AssertionError):
                until(lambda: not page.evaluate(OUTSIDE), seconds=2)  # plots follow the window after a moment
            if outside := page.evaluate(OUTSIDE):
                found[f"{name} {path} {width}"] = outside
    page.close()
    return found


def text_of(found: dict[str, list[str]]) -> str:
    return "\n".join(line for name, problems in found.items() for line in (f"== {name}", *problems))


def test_main_pages_are_accessible_and_fit(context: BrowserContext, world: PageWorld) -> None:
    main = world.pages(context, SHORT)
    assert main.keys() == SHORT  # found by URL patterns: none may drop out because the rows do not fit it any more
    found = check(context, main, cycle(([ALL_VIEWS[0]], [ALL_VIEWS[1]])))
    assert not found, text_of(found)


def test_signing_in_is_accessible(browser: Browser, server: LiveServer) -> None:
    with watched_context(browser, server.url) as context:
        allow_errors(context, STYLE_REFUSED)
        context.add_init_script(AXE)
        found = check(context, {"sign-in": "/accounts/sign-in/"}, [ALL_VIEWS])
    assert not found, text_of(found)


@pytest.mark.long(minutes=5)
def test_every_page_is_accessible_in_every_view(context: BrowserContext, pages: dict[str, str]) -> None:
    found = check(context, pages, repeat(ALL_VIEWS))
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
