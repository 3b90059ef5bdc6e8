"""Template tags: icons from the sprite, the import map of the scripts, and the main navigation."""

import json
from functools import cache, lru_cache
from typing import Final

from django import template
from django.conf import settings
from django.template.context import RequestContext
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from django.utils.translation import gettext

from gpuplatform.administration import navigation
from restapi import client_wheel, client_zipapp
from sessions.lifecycle import Status

register = template.Library()
register.simple_tag(client_wheel.address, name="client_address")
register.simple_tag(client_zipapp.address, name="cli_address")

MAX_ICONS: Final = 512  # kept of a process; pages have about a hundred
STATUS_ICONS: Final = {
    Status.PENDING: "clock",
    Status.SCHEDULED: "host",
    Status.PREPARING: "box",
    Status.RUNNING: "play",
    Status.TERMINATING: "power",
    Status.PARKED: "pause",
    Status.TERMINATED: "check",
    Status.CANCELLED: "x",
    Status.ERROR: "alert",
}
_XTERM: Final = "vendor/xterm"
_PACKAGES: Final = {
    "markdown-it": "vendor/markdown-it/markdown-it.esm.min.mjs",
    "@xterm/xterm": f"{_XTERM}/xterm/lib/xterm.mjs",
    "@xterm/addon-fit": f"{_XTERM}/addon-fit/lib/addon-fit.mjs",
    "@xterm/addon-unicode11": f"{_XTERM}/addon-unicode11/lib/addon-unicode11.mjs",
    "@xterm/addon-web-links": f"{_XTERM}/addon-web-links/lib/addon-web-links.mjs",
}


@register.simple_tag
@lru_cache(MAX_ICONS)
def icon(name: str, classes: str = "") -> SafeString:
    """Return an icon of static/img/icons.svg. It is decorative, so the element around it needs a label."""
    return format_html(
        '<svg class="icon{}" aria-hidden="true"><use href="{}#{}"/></svg>',
        f" {classes}" if classes else "",
        static("img/icons.svg"),
        name,
    )


@register.filter
def deferred(html: str) -> SafeString:
    """Return rendered HTML whose scripts run, in their order, after the page is parsed, and do not delay its paint."""
    return mark_safe(html.replace("<script ", "<script defer "))  # noqa: S308  # what a template has rendered


@register.simple_tag
def status_badge(status: str) -> SafeString:
    """Return a session's status as its icon and word."""
    classes = f"status-badge status-{status.lower()}"
    return format_html('<span class="{}">{}{}</span>', classes, icon(STATUS_ICONS[Status(status)]), state_word(status))


@register.filter
def state_word(state: str) -> str:
    """Return the word for a session's status or result: "Running" for RUNNING."""
    return capfirst(gettext(state.lower()))  # choices of the model, so in the catalogues


@register.simple_tag
def import_map() -> SafeString:
    """Return the import map: each file of static/js as "#name", as in package.json, and modules of npm packages."""
    return _import_map.__wrapped__() if settings.DEBUG else _import_map()


@cache
def _import_map() -> SafeString:
    modules = {f"#{path.stem}": f"js/{path.name}" for path in sorted((settings.BASE_DIR / "static/js").glob("*.js"))}
    addresses = {name: static(path) for name, path in (modules | _PACKAGES).items()}
    return mark_safe(json.dumps({"imports": addresses}))  # noqa: S308  # names of our own files


@register.simple_tag(takes_context=True)
def navigation_links(context: RequestContext) -> list[navigation.Link]:
    """Return the links of the main navigation for the user of the request."""
    return list(navigation.links(context["request"]))


@register.simple_tag(takes_context=True)
def palette_links(context: RequestContext) -> list[navigation.Link]:
    """Return the links that the palette shows by themselves: those of the main navigation, and more."""
    return list(navigation.links(context["request"], navigation.ENTRIES + navigation.MORE))


@register.simple_tag(takes_context=True)
def help_address(context: RequestContext) -> str:
    """Return the URL of the help about the request's page."""
    return navigation.help_url(context["request"])
