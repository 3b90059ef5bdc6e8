"""The page of imports: asks for an address, shows what is found there, fetches it, and leads to the wizard."""

from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_act, signed_in_form
from imports import services
from imports.models import Import, ImportState, ImportTarget
from pages.imports.forms import AddressForm, TargetForm
from pages.launch import beginnings
from pages.launch.links import unknown_names

SHOWN: Final = 10  # of the user's last imports
SOURCE: Final = {"repo": "address", "ref": "ref", "path": "path"}  # parameters of launch links


@signed_in_form
def new(request: UserRequest) -> HttpResponse:
    """Ask for an address, which a link may fill in; POST looks at what is there, or goes for a credential first."""
    named = {field: request.GET[name] for name, field in SOURCE.items() if name in request.GET}
    named |= {"credential": request.GET["credential"]} if "credential" in request.GET else {}
    form = AddressForm(request.user, request.POST if request.method == "POST" else None, named)
    link = request.POST.get("link", "") if form.is_bound else beginnings.link_of(request.GET)
    if "add_credential" in request.POST:
        typed = {name: request.POST.get(field, "") for name, field in SOURCE.items()}
        return redirect(_with(reverse("imports:credentials"), urlencode({"next": _page_with(typed, link)})))
    if form.is_bound and form.is_valid() and (looked := form.look()):
        return redirect(_with(reverse("imports:detail", args=[looked.pk]), link))
    last = Import.objects.filter(owner=request.user).select_related("folder")[:SHOWN]
    unknown = unknown_names(request.GET, {*SOURCE, "credential"})
    context = {"form": form, "link": link, "imports": last, "unknown": unknown, "is_filled": bool(named.get("address"))}
    return render(request, "imports/new.html", context, status=422 if form.is_bound else 200)


@signed_in_form
def detail(request: UserRequest, import_id: str) -> HttpResponse:
    """Show how far an import is and what was found; POST of a look says where it goes. htmx gets what changes."""
    shown = _found(request, import_id)
    link = beginnings.link_of(request.GET)
    context: dict[str, Any] = {"import": shown, "link": link, "launch_url": _launch_url(shown, link)}
    status = 200
    if shown.state == ImportState.DONE:
        context["options"] = options = services.launch_options(shown)
        apps = options.image.apps.all() if options.image else ()
        context["app_title"] = next((app.title for app in apps if app.name == options.app), "")
        if shown.target == ImportTarget.LOOK:
            form = TargetForm(shown, request.POST if request.method == "POST" else None, _proposed(shown))
            if form.is_bound and form.is_valid():
                if form.is_session:
                    return redirect(context["launch_url"])
                if begun := form.begin():
                    return redirect(_with(reverse("imports:detail", args=[begun.pk]), link))
            context["form"] = form
            status = 422 if form.is_bound else 200
    elif not shown.is_live:
        source = {"repo": shown.address, "ref": shown.ref, "path": shown.path}
        context["again_url"] = _page_with(source | {"credential": shown.credential_id or ""}, link)
    template = "imports/_detail.html" if request.htmx else "imports/detail.html"
    return render(request, template, context, status=status)


@signed_in_act
def cancel(request: UserRequest, import_id: str) -> HttpResponse:
    """End an import that is under way."""
    ended = _found(request, import_id)
    services.cancel(ended, actor=request.user)
    messages.success(request, _("The import is cancelled; nothing of it is left."))
    return redirect(_with(reverse("imports:detail", args=[ended.pk]), beginnings.link_of(request.GET)))


def _found(request: UserRequest, import_id: str) -> Import:
    related = Import.objects.filter(owner=request.user).select_related(
        *("owner__policy", "credential", "folder", "session__resource_group")
    )
    return get_object_or_404(related, pk=import_id)


def _proposed(looked: Import) -> dict[str, Any]:
    """Return what the form about the target begins with: a new folder of the repository's name."""
    name = looked.directory or looked.url.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return {"where": "new", "folder_name": name}


def _launch_url(shown: Import, link: str) -> str:
    """Return the address of the wizard with what the import proposes, and what a link says above that."""
    query = QueryDict(link, mutable=True)
    query["import"] = shown.pk
    return _with(reverse("sessions:launch-step", args=["review"]), query.urlencode())


def _page_with(source: dict[str, Any], link: str) -> str:
    given = urlencode({name: text for name, text in source.items() if text})
    return _with(reverse("imports:new"), "&".join(filter(None, (given, link))))


def _with(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path
