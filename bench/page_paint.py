"""How long a person waits in a real browser: from a click until the page or dialog is painted; a first page, too."""

import statistics
from collections.abc import Mapping
from typing import Any, Final

from playwright.sync_api import Locator, Page

import bench.apps_ready  # noqa: F401  # before what imports models
from bench.sizes import size
from tests.browser import chromium
from tests.page_world import KINDS

ROUNDS: Final = size(11, 1)
COLD_ROUNDS: Final = size(5, 1)
MAX_KINDS: Final = size(len(KINDS), 2)
WARM_UP: Final = size(2, 0)  # rounds that do not count: the browser's cache is empty at first
PAGES: Final = {  # name: the entry of the main navigation
    "summary": "Summary",
    "sessions": "Sessions",
    "launch": "Launch",
    "folders": "Data folders",
    "environments": "Environments",
    "hosts": "Hosts",
}
DIALOGS: Final = {"apps": "a[id^=apps-]", "terminate": "a[id^=end-]", "extend": "a[id^=extend-]"}
CLICK: Final = "link => { const at = performance.timeOrigin + performance.now(); link.click(); return at; }"
# The last of the first and the largest contentful paint, in milliseconds of Unix time.
PAINTED: Final = """() => new Promise((resolve) => {
  const at = [];
  const note = (list) => at.push(...list.getEntries().map((entry) => entry.startTime));
  const observe = (type) => new PerformanceObserver(note).observe({ type, buffered: true });
  ["paint", "largest-contentful-paint"].forEach(observe);
  const look = () => {
    if (at.length) setTimeout(() => resolve(performance.timeOrigin + Math.max(...at)), 50);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""
FIRST_PAINT: Final = """() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    list.getEntriesByName("first-contentful-paint").forEach((entry) => resolve(entry.startTime));
  }).observe({ type: "paint", buffered: true });
})"""
DIALOG_PAINTED: Final = """(link) => new Promise((resolve) => {
  const begun = performance.now();
  const look = () => {
    if (!document.querySelector("dialog[open] h2")) requestAnimationFrame(look);
    else requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - begun)));
  };
  link.click();
  requestAnimationFrame(look);
})"""

Figures = dict[str, dict[str, float]]


def measure(url: str, cookie: str) -> dict[str, Figures]:
    """Return the median and the longest time in milliseconds of each page, and of each dialog of the list."""
    with chromium() as browser:
        context = browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
        context.add_cookies([{"name": "gp_session", "value": cookie, "url": url}])
        page = context.new_page()
        page.goto("/sessions/")
        return {"click_to_page_painted_ms": _pages(page), "click_to_dialog_painted_ms": _dialogs(page)}


def first_paints(url: str, cookie: str, paths: Mapping[str, str]) -> dict[str, Any]:
    """Return the median milliseconds until something of a page of each kind is painted, the cache being empty at first.

    And those and the name of the slowest; the time of the server is in them.
    """
    times: dict[str, list[float]] = {name: [] for name in sorted(KINDS)[:MAX_KINDS]}
    with chromium() as browser:
        for _ in range(COLD_ROUNDS):
            for name, each in times.items():
                with browser.new_context(base_url=url, viewport={"width": 1440, "height": 900}) as context:
                    context.add_cookies([{"name": "gp_session", "value": cookie, "url": url}])
                    page = context.new_page()
                    page.goto(paths[name])
                    each.append(float(page.evaluate(FIRST_PAINT)))
    medians = {name: round(statistics.median(each)) for name, each in times.items()}
    slowest = max(medians, key=lambda name: medians[name])
    return {"first_paint_of_pages_ms": medians, "first_paint_ms": medians[slowest], "slowest_first_paint": slowest}


def _pages(page: Page) -> Figures:
    menu = page.get_by_role("navigation", name="Main")
    times: dict[str, list[float]] = {name: [] for name in (*PAGES, "session")}
    for _ in range(ROUNDS):
        for name, title in PAGES.items():
            times[name].append(_page_time(page, menu.get_by_role("link", name=title, exact=True)))
            if name == "sessions":
                times["session"].append(_page_time(page, page.locator(".session-name").first))
    return _summaries(times)


def _page_time(page: Page, link: Locator) -> float:
    """Return the milliseconds from a click on the link until the page that it leads to is painted."""
    with page.expect_navigation(wait_until="load"):
        clicked = float(link.evaluate(CLICK))
    return float(page.evaluate(PAINTED)) - clicked


def _dialogs(page: Page) -> Figures:
    page.goto("/sessions/")
    times: dict[str, list[float]] = {}
    for name, selector in DIALOGS.items():
        link = page.locator(selector).first
        for _ in range(ROUNDS if link.count() else 0):
            times.setdefault(name, []).append(float(link.evaluate(DIALOG_PAINTED)))
            page.keyboard.press("Escape")
            page.locator("dialog[open]").wait_for(state="detached")
    return _summaries(times)


def _summaries(times: Mapping[str, list[float]]) -> dict[str, Any]:
    return {
        name: {"p50_ms": round(statistics.median(each[WARM_UP:])), "max_ms": round(max(each[WARM_UP:]))}
        for name, each in times.items()
    }
