"""What axe-core and the width of the window say of pages, in themes, widths and sizes of text."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from django.conf import settings
from playwright.sync_api import BrowserContext, Page, expect

from tests.wait import until

AXE: Final = (settings.BASE_DIR / "node_modules/axe-core/axe.min.js").read_text()
RUN: Final = """runOnly => axe.run(document, {
  runOnly, rules: {"label-content-name-mismatch": {enabled: true}}, resultTypes: ["violations"], preload: false,
})"""  # the rule is for who speaks what stands on a control (2.5.3 Label in Name)
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LABELS: Final = {"type": "rule", "values": ["label-content-name-mismatch"]}  # all that a language can break
COLOURS: Final = {"type": "rule", "values": ["color-contrast"]}  # all that can differ between views of one width
STYLE_REFUSED: Final = "Content Security Policy directive 'style-src"  # axe writes styles, which our policy refuses
# What a page is about that nobody can see, or that another program draws.
NOT_OURS: Final = {"sessions-terminal": {"color-contrast"}}  # its screen, whose colours the shell's programs choose


class View(NamedTuple):
    """How a page is looked at: theme, width of the window in CSS pixels, and size of text in percent."""

    theme: Literal["light", "dark"]
    width: int
    text: int = 100


VIEWS: Final = (View("light", 1440), View("dark", 320), View("dark", 1440), View("light", 320))
LARGE_TEXT: Final = View("light", 720, 200)  # a window of 1440 at a zoom of 200 %, and text of twice the size as well
WIDTHS: Final = (320, 390, 600, 720, 768, 1024, 1440)
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


def faults(page: Page, name: str, rules: Any = RULES) -> list[str]:
    """Return what axe finds, of any severity."""
    found: dict[str, Any] = page.evaluate(RUN, rules)
    return [
        f"{each['id']}: {node['html'][:160]} ({(node['failureSummary'] or '').splitlines()[-1].strip()})"
        for each in found["violations"]
        if each["id"] not in NOT_OURS.get(name, ())
        for node in each["nodes"][:3]
    ]


def outside(page: Page) -> list[str]:
    """Return what of the page only scrolling sideways shows; plots follow the window after a moment."""
    with suppress(AssertionError):
        until(lambda: not page.evaluate(OUTSIDE), seconds=2)
    found: list[str] = page.evaluate(OUTSIDE)
    return found


def show(page: Page, view: View) -> None:
    """Let the page that is open be looked at in this way."""
    page.set_viewport_size({"width": view.width, "height": 900})
    page.emulate_media(color_scheme=view.theme, reduced_motion="reduce")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", view.theme)
    page.evaluate("percent => document.documentElement.style.fontSize = percent + '%'", view.text)


def check(
    context: BrowserContext,
    pages: dict[str, str],
    views: Iterable[Sequence[View]],
    widths: Sequence[int] = WIDTHS,
    more: Callable[[Page, str], list[str]] = lambda _page, _name: [],
) -> dict[str, list[str]]:
    """Return the faults of each page in its views, and in those widths, by page and view.

    `more` returns further faults of an open page, of which it gets the name.
    """
    found: dict[str, list[str]] = {}
    page = context.new_page()
    for (name, path), its_views in zip(pages.items(), views, strict=False):
        page.goto(path)
        if problems := more(page, name):
            found[f"{name} {path}"] = problems
        seen: set[tuple[int, int]] = set()
        for view in its_views:
            show(page, view)
            is_new = (view.width, view.text) not in seen
            seen.add((view.width, view.text))
            problems = faults(page, name, RULES if is_new else COLOURS) + outside(page)
            if problems:
                found[f"{name} {path} {view}"] = problems
        for width in widths:
            show(page, View("light", width))
            if problems := outside(page):
                found[f"{name} {path} {width}"] = problems
    page.close()
    return found


def text_of(found: dict[str, list[str]]) -> str:
    """Return the faults as lines below their pages."""
    return "\n".join(line for name, problems in found.items() for line in (f"== {name}", *problems))
