"""The entries of the main navigation, and which of them a request belongs to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True)
class NavigationEntry:
    """A page of the main navigation."""

    label: str | Promise
    icon: str  # of static/img/icons.svg
    view: str  # that it leads to
    covers: tuple[str, ...] = ()  # beginnings of the names of the views that belong to it, besides `view`
    for_staff: bool = False
    document: str = ""  # of the help, about the entry's pages
    staff_document: str = ""  # the one for those who run the platform, if that is another

    def match(self, view_name: str) -> int:
        """Return how many characters of the view's name say that it belongs to the entry; 0 if it does not."""
        return max((len(prefix) for prefix in (self.view, *self.covers) if view_name.startswith(prefix)), default=0)


@dataclass(frozen=True)
class Link:
    """An entry as one request shows it."""

    entry: NavigationEntry
    url: str
    is_active: bool  # the request's page belongs to the entry
    is_current: bool  # the entry leads to the request's page itself


# An entry whose view has no URL is left out.
ENTRIES: Final = (
    NavigationEntry(_("Summary"), "home", "overview:home", document="getting-started"),
    NavigationEntry(_("Sessions"), "layers", "sessions:list", ("sessions:", "endpoints:"), document="sessions"),
    NavigationEntry(_("Launch"), "play", "sessions:launch", ("sessions:template",), document="launching"),
    NavigationEntry(_("Import"), "download", "imports:new", ("imports:detail",), document="importing"),
    NavigationEntry(_("Arrays"), "columns", "arrays:list", ("arrays:",), document="arrays"),
    NavigationEntry(_("Deployments"), "globe", "deployments:list", ("deployments:",), document="deployments"),
    NavigationEntry(_("Data folders"), "folder", "folders:list", ("folders:",), document="folders"),
    NavigationEntry(_("Projects"), "users", "overview:projects", ("overview:project",), document="projects"),
    NavigationEntry(
        _("Environments"),
        "box",
        "overview:environments",
        ("overview:environment", "sessions:private-images"),
        document="environments",
    ),
    NavigationEntry(
        _("Hosts"), "host", "overview:hosts", ("overview:host",), document="gpu-shares", staff_document="hosts"
    ),
    NavigationEntry(_("Usage"), "chart", "overview:usage", document="usage"),
    NavigationEntry(
        _("Administration"),
        "shield",
        "admin:index",
        ("admin:", "overview:user", "simulation", "service", "configuration"),
        for_staff=True,
        staff_document="operations",
    ),
)

# What the palette leads to beside them: actions, and pages of the account.
MORE: Final = (
    NavigationEntry(_("Launch from a template"), "file", "sessions:templates"),
    NavigationEntry(_("Launch from a file"), "upload", "sessions:launch-file"),
    NavigationEntry(_("New deployment"), "plus", "deployments:new"),
    NavigationEntry(_("New folder"), "folder-plus", "folders:create"),
    NavigationEntry(_("Limits"), "info", "overview:limits"),
    NavigationEntry(_("Account"), "user", "accounts:profile"),
    NavigationEntry(_("API tokens"), "key", "accounts:tokens"),
    NavigationEntry(_("SSH keys"), "lock", "accounts:ssh-keys"),
    NavigationEntry(_("Notifications"), "bell", "notifications:list"),
    NavigationEntry(_("Webhooks"), "link", "webhooks:list"),
    NavigationEntry(_("Images of sessions"), "image", "sessions:private-images"),
    NavigationEntry(_("Keys"), "keyboard", "help:keys"),
    NavigationEntry(_("Help"), "help", "help:index"),
    NavigationEntry(_("API"), "book", "api-docs"),
    NavigationEntry(_("Simulation"), "flask", "simulation", for_staff=True),
    NavigationEntry(_("Services"), "database", "services", for_staff=True),
)

# Of the help, about pages that are no entry's, or about another thing than their entry.
DOCUMENTS: Final = {
    "accounts:": "account",
    "accounts:ssh-keys": "ssh",
    "accounts:tokens": "command-line",
    "account_": "account",
    "mfa_": "account",
    "overview:limits": "account",
    "imports:credentials": "importing",
    "notifications:": "notifications",
    "webhooks:": "webhooks",
    "endpoints:": "apps",
    "sessions:template": "templates",
    "sessions:terminal": "terminal",
    "sessions:park": "parking",
    "sessions:extend": "ending",
}


def links(request: HttpRequest, entries: Sequence[NavigationEntry] = ENTRIES) -> Iterator[Link]:
    """Yield the entries that the user of `request` may open; the one that matches its view best is active."""
    view_name = _view_name(request)
    best = max(entry.match(view_name) for entry in entries)
    for entry in entries:
        if entry.for_staff and not request.user.is_staff:
            continue
        try:
            url = reverse(entry.view)
        except NoReverseMatch:
            continue
        yield Link(entry, url, best > 0 and entry.match(view_name) == best, entry.view == view_name)


def help_url(request: HttpRequest) -> str:
    """Return the URL of the help about the request's page, or of all help."""
    view_name = _view_name(request)
    entry = max(ENTRIES, key=lambda entry: entry.match(view_name))
    document = (request.user.is_staff and entry.staff_document) or entry.document if entry.match(view_name) else ""
    beginnings = [beginning for beginning in DOCUMENTS if view_name.startswith(beginning)]
    document = DOCUMENTS[max(beginnings, key=len)] if beginnings else document
    return reverse("help:page", args=[document]) if document else reverse("help:index")


def _view_name(request: HttpRequest) -> str:
    return request.resolver_match.view_name if request.resolver_match else ""
