"""Help: the documentation of the installed version for its reader, searchable, and the keys of the pages."""

import re
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.utils.functional import Promise
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from accounts.credentials.ssh_address import ssh_host_and_port
from accounts.models import User
from pages.help import documents
from restapi import client_wheel


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
        (
            "getting-started",
            "launching",
            "importing",
            "spec-files",
            "templates",
            "arrays",
            "cluster-sessions",
            "waiting",
            "sessions",
            "parking",
            "ending",
            "deployments",
            "reasons",
        ),
    ),
    DocumentGroup(
        _("Inside a session"),
        "terminal",
        ("apps", "terminal", "folders", "ssh", "environments", "gpu-shares"),
    ),
    DocumentGroup(
        _("Accounts, projects and programs"),
        "user",
        ("account", "notifications", "projects", "usage", "command-line", "python", "api", "webhooks"),
    ),
    DocumentGroup(
        _("Running the platform"),
        "host",
        (
            *(
                "operations",
                "install",
                "install-steps",
                "upgrade",
                "scaling",
                "growth",
                "backup",
                "settings",
                "hosts",
                "elastic",
                "slurm",
                "images",
                "fgpu",
                "storage",
            ),
            *("accounts", "scheduling", "idle", "clusters", "isolation", "security", "apps-by-port", "glossary"),
        ),
        for_staff=True,
    ),
)
# What stands in the users' documents for what differs from platform to platform.
EXAMPLE_PACKAGE: Final = "https://gpu.example.org/client/gpuplatform_client.whl"
EXAMPLE_URL: Final = "https://gpu.example.org"
EXAMPLE_SSH: Final = ("gpu.example.org", "8022")  # name and port of the SSH server
_PICTURE: Final = re.compile(r'(?<=src=")(?:\.\./)*images/([\w-]+\.(?:png|svg))')


@login_required
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List the documents, or what a search `q` finds in them."""
    query = request.GET.get("q", "").strip()
    context = {
        "groups": _groups(request),
        "query": query,
        "results": documents.search(query, names_for(request.user), get_language() or "") if query else [],
    }
    return render(request, "help/index.html", context)


@login_required
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a document."""
    language = documents.ORIGINAL if "original" in request.GET else get_language() or ""
    try:
        document = documents.load(name, names_for(request.user), language)
    except KeyError:
        raise Http404 from None
    context = {"document": document, "html": _of_this_platform(document.html), "groups": _groups(request)}
    return render(request, "help/page.html", context)


@login_required
@require_safe
def keys(request: HttpRequest) -> HttpResponse:
    """Show the keys of the pages; htmx gets the dialog alone."""
    return render(request, "help/_keys.html" if request.headers.get("HX-Request") else "help/keys.html")


def _of_this_platform(html: str) -> SafeString:
    """Return a document's HTML with its pictures, and with this platform's addresses in place of the examples."""
    html = _PICTURE.sub(lambda picture: static(f"help/{picture[1]}"), html)
    own = {EXAMPLE_PACKAGE: client_wheel.address(), EXAMPLE_URL: settings.COMPUTE_PUBLIC_URL.rstrip("/")}
    own |= zip(EXAMPLE_SSH, ssh_host_and_port() or EXAMPLE_SSH, strict=True)
    html = re.sub("|".join(map(re.escape, own)), lambda example: escape(own[example[0]]), html)
    return mark_safe(html)  # noqa: S308  # of our own files


def _groups(request: HttpRequest) -> list[tuple[DocumentGroup, list[documents.Document]]]:
    language, among = get_language() or "", names_for(request.user)
    return [
        (group, [documents.load(name, among, language) for name in group.names])
        for group in GROUPS
        if among.issuperset(group.names)
    ]


def names_for(user: User | AnonymousUser) -> frozenset[str]:
    """Return the documents for the user: those on running the platform for whom the administration is, too."""
    is_staff = user.is_staff or user.is_superuser
    return frozenset(name for group in GROUPS if is_staff or not group.for_staff for name in group.names)
