"""Help: the documentation of the installed version, searchable, and the keys of the pages."""

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


GROUPS: Final = (
    DocumentGroup(
        _("Using the platform"),
        "play",
        (
            "getting-started",
            "launching",
            "sessions",
            "apps",
            "folders",
            "ssh",
            "images",
            "lifecycle",
            "scheduling",
            "fgpu",
            "isolation",
            "notifications",
            "webhooks",
            "api",
            "glossary",
        ),
    ),
    DocumentGroup(_("Running the platform"), "host", ("hosts", "settings", "security")),
    DocumentGroup(_("How it works inside"), "layers", ("architecture", "proxy", "design")),
)
ORDER: Final = tuple(name for group in GROUPS for name in group.names)


@login_required
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List the documents, or what a search `q` finds in them."""
    query = request.GET.get("q", "").strip()
    context = {
        "groups": _groups(),
        "query": query,
        "results": documents.search(query, ORDER, get_language() or "") if query else [],
    }
    return render(request, "help/index.html", context)


@login_required
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a document."""
    try:
        document = documents.load(name, documents.ORIGINAL if "original" in request.GET else get_language() or "")
    except KeyError:
        raise Http404 from None
    return render(request, "help/page.html", {"document": document, "groups": _groups()})


@login_required
@require_safe
def keys(request: HttpRequest) -> HttpResponse:
    """Show the keys of the pages; htmx gets the dialog alone."""
    return render(request, "help/_keys.html" if request.headers.get("HX-Request") else "help/keys.html")


def _groups() -> list[tuple[DocumentGroup, list[documents.Document]]]:
    language = get_language() or ""
    return [(group, [documents.load(name, language) for name in group.names]) for group in GROUPS]
