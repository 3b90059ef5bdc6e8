"""Help: the documentation of the installed version for its reader, searchable, and the keys of the pages."""

from dataclasses import dataclass
from typing import Final

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from pages.help import documents


@dataclass(frozen=True)
class DocumentGroup:
    """Documents for one kind of reader."""

    title: str | Promise
    icon: str
    names: tuple[str, ...]
    for_staff: bool = False


# What only engineers need (architecture, ADRs, ...) is in the repository alone.
GROUPS: Final = (
    DocumentGroup(
        _("Sessions"),
        "play",
        ("getting-started", "launching", "sessions", "reasons", "scheduling", "gpu-shares", "idle"),
    ),
    DocumentGroup(
        _("Inside a session"),
        "terminal",
        ("environments", "apps", "folders", "ssh", "isolation"),
    ),
    DocumentGroup(
        _("Accounts, projects and programs"),
        "user",
        ("accounts", "notifications", "projects", "usage", "api", "webhooks", "glossary"),
    ),
    DocumentGroup(
        _("Running the platform"),
        "host",
        (
            "operations",
            "install",
            "upgrade",
            "scaling",
            "backup",
            "settings",
            "hosts",
            "images",
            "fgpu",
            "apps-by-port",
            "security",
        ),
        for_staff=True,
    ),
)


@login_required
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List the documents, or what a search `q` finds in them."""
    query = request.GET.get("q", "").strip()
    context = {
        "groups": _groups(request),
        "query": query,
        "results": documents.search(query, _names(request), get_language() or "") if query else [],
    }
    return render(request, "help/index.html", context)


@login_required
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a document."""
    language = documents.ORIGINAL if "original" in request.GET else get_language() or ""
    try:
        document = documents.load(name, _names(request), language)
    except KeyError:
        raise Http404 from None
    return render(request, "help/page.html", {"document": document, "groups": _groups(request)})


@login_required
@require_safe
def keys(request: HttpRequest) -> HttpResponse:
    """Show the keys of the pages; htmx gets the dialog alone."""
    return render(request, "help/_keys.html" if request.headers.get("HX-Request") else "help/keys.html")


def _groups(request: HttpRequest) -> list[tuple[DocumentGroup, list[documents.Document]]]:
    language, among = get_language() or "", _names(request)
    return [
        (group, [documents.load(name, among, language) for name in group.names])
        for group in GROUPS
        if among.issuperset(group.names)
    ]


def _names(request: HttpRequest) -> frozenset[str]:
    """Return the documents for the user: those on running the platform for whom the administration is, too."""
    is_staff = request.user.is_staff or request.user.is_superuser
    return frozenset(name for group in GROUPS if is_staff or not group.for_staff for name in group.names)
