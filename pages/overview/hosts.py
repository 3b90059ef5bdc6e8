"""Pages of hosts: which GPU is leased to whom, and taking a host out of service."""

from typing import Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from accounts.models import User
from accounts.requests import UserRequest, signed_in_form, signed_in_page
from pages.overview.gpu_map import rows_of, with_map
from pages.overview.topology_table import topology_table
from resources.models import Host, HostImage, HostStatus, Image, ResourceGroup
from sessions.drains import services as drains
from sessions.drains.form import DrainForm
from sessions.models import Session

PAGE_SIZE: Final = 10  # of up to 16 GPUs each
STATES: Final = {
    "ready": Q(status=HostStatus.READY, is_cordoned=False),
    "out": Q(is_cordoned=True),
    "lost": Q(status=HostStatus.LOST),
}


@signed_in_page
def host_list(request: UserRequest) -> HttpResponse:
    """Show the hosts of the user's groups with their GPUs; return only the live part to htmx."""
    groups = list(ResourceGroup.objects.usable_by(request.user))
    chosen = next((group for group in groups if str(group.pk) == request.GET.get("group")), None)
    state = request.GET.get("state", "")
    search = request.GET.get("q", "").replace("\0", "").strip()
    visible = visible_to(request.user)
    found = _filtered(visible, chosen, state, search)
    page = Paginator(with_map(found.order_by("group__name", "name")), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "rows": rows_of(page.object_list, request.user),
        "groups": groups,
        "group": chosen,
        "state": state,
        "search": search,
        "is_filtered": bool(chosen or state in STATES or search),
        "counts": visible.aggregate(all=Count("pk"), **{name: Count("pk", filter=q) for name, q in STATES.items()}),
    }
    return render(request, "overview/_hosts.html" if request.htmx else "overview/hosts.html", context)


@signed_in_page
def host_detail(request: UserRequest, name: str) -> HttpResponse:
    """Show one host; return only the live part to htmx."""
    host = get_object_or_404(with_map(visible_to(request.user)), name=name)
    related = Session.objects.visible_to(request.user).filter(lease__host=host)
    (row,) = rows_of([host], request.user)
    context = {
        "row": row,
        "topology": topology_table(host),
        "sessions": related.select_related(
            "owner__policy", "project__policy", "image", "host", "resource_group"
        ).order_by("name", "pk"),
        "images": HostImage.objects.filter(host=host, image__in=Image.objects.visible_to(request.user)).select_related(
            "image"
        ),
    }
    return render(request, "overview/_host.html" if request.htmx else "overview/host.html", context)


@signed_in_form
def drain(request: UserRequest, name: str) -> HttpResponse:
    """Ask what becomes of the sessions of a host, or take it out of service."""
    host = _managed(request.user, name)
    form = DrainForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        reason = form.cleaned_data["reason"].replace("\0", "")
        left = drains.drain(host, end_at=form.end_at(), reason=reason, actor=request.user)
        text = _("%(host)s takes no new sessions. Sessions left: %(count)d.")
        messages.success(request, text % {"host": host.name, "count": len(left)})
        return redirect("overview:host", host.name)
    context = {"host": host, "form": form, "sessions": drains.sessions_on(host)}
    template = "overview/_drain.html" if request.htmx else "overview/drain.html"
    return render(request, template, context, status=422 if form.is_bound else 200)


@require_POST
@login_required
def take_back(request: UserRequest, name: str) -> HttpResponse:
    """Place sessions on the host again."""
    host = _managed(request.user, name)
    drains.undrain(host, actor=request.user)
    messages.success(request, _("%(host)s takes sessions again.") % {"host": host.name})
    return redirect("overview:host", host.name)


def visible_to(user: User) -> QuerySet[Host]:
    """Return the hosts of the groups that the user may use; all of them for a superadmin."""
    if user.is_superuser:
        return Host.objects.all()
    return Host.objects.filter(group__in=ResourceGroup.objects.usable_by(user).values("pk"))


def _filtered(hosts: QuerySet[Host], group: ResourceGroup | None, state: str, search: str) -> QuerySet[Host]:
    if group:
        hosts = hosts.filter(group=group)
    if state in STATES:
        hosts = hosts.filter(STATES[state])
    if search:
        by_gpu = Host.objects.filter(gpus__name__icontains=search, gpus__is_present=True).values("pk")
        hosts = hosts.filter(Q(name__icontains=search) | Q(pk__in=by_gpu))
    return hosts


def _managed(user: User, name: str) -> Host:
    """Return the host; raise Http404 unless the user may take it out of service."""
    if not user.is_superuser:
        raise Http404
    return get_object_or_404(Host.objects.select_related("group"), name=name)
