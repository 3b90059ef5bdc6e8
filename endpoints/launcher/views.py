"""The launcher of a session's apps, the page of an app that starts, and the list of what is public or shared."""

import re
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.db.models import Prefetch
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django_htmx.http import HttpResponseClientRedirect, reswap, retarget, trigger_client_event

from accounts.requests import UserRequest, signed_in_act, signed_in_form, signed_in_page
from endpoints import services
from endpoints.launcher import opened_files
from endpoints.launcher.forms import SHARE_LIFETIMES, OpenForm, ShareForm
from endpoints.launcher.found_ports import found_ports
from endpoints.routing import addresses, routes
from resources.models import App
from sessions.access import app_addresses, app_states
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session, ShareLink

_PORT_APP: Final = re.compile(r"p[0-9]{4,5}")


@signed_in_form
def launcher(request: UserRequest, session_id: str) -> HttpResponse:
    """Show the launcher; POST opens the chosen app and redirects to its page. htmx gets the dialog alone."""
    session = _visible(request, session_id)
    form = OpenForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and (note := _open(request, session, form)) is not None:
        return _to_page(request, session, form.app_name, note)
    template = "endpoints/_apps.html" if request.htmx else "endpoints/apps.html"
    return render(request, template, _launcher_context(session, form), status=422 if form.is_bound else 200)


@signed_in_page
def found(request: UserRequest, session_id: str) -> HttpResponse:
    """Show what listens in the session beside its image's apps: a part of the launcher's form.

    The launcher asks again and again; once the session does not run, it is replaced by one that says so.
    """
    session = _visible(request, session_id)
    if session.status != Status.RUNNING:
        whole = render(request, "endpoints/_apps.html", _launcher_context(session, OpenForm()))
        return reswap(retarget(whole, ".apps-dialog"), "outerHTML")
    return render(request, "endpoints/_found_ports.html", {"ports": found_ports(session)})


@signed_in_page
def imported(request: UserRequest, session_id: str) -> HttpResponse:
    """Show how far the session's import is, or what opens it: a part of the launcher, which asks again meanwhile."""
    session = _visible(request, session_id)
    return render(request, "endpoints/_imported.html", {"session": session, **opened_files.context_of(session)})


@signed_in_form
def app(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Show the progress of an app, and redirect to it once it is READY; POST starts it, or starts it again.

    With `?stopped`, from a proxy that found it dead, and `?told`, with a message to read, there is no redirect;
    with `?imported` it leads to the file that the session was launched for.
    """
    session = _visible(request, session_id)
    offered = session.image.apps.filter(name=name).first()
    if not (offered or _PORT_APP.fullmatch(name)):
        raise Http404
    endpoint = Endpoint.objects.unclosed().filter(session=session, app=name).select_related("session__image").first()
    form = OpenForm({"app": name} if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        if endpoint and "stopped" in request.GET:
            app_states.report(endpoint, EndpointState.STARTING, "Looking whether it still runs …")
        if (note := _open(request, session, form)) is not None:
            return _to_page(request, session, name, note)
    address = app_addresses.first_page(endpoint) if endpoint and _is_ready(session, endpoint) else ""
    if endpoint and address and "imported" in request.GET:
        address = opened_files.address(endpoint) or address
    if not form.is_bound and (target := _redirect_target(request, address)):
        return _redirect(request, target, is_app=target == address)
    context = {
        "session": session,
        "name": name,
        "endpoint": endpoint,
        "is_by_hand": not (offered and offered.command),
        "title": offered.title if offered else f"Port {name[1:]}",
        "icon_name": (offered.icon if offered else "") or "plug",
        "is_running": session.status == Status.RUNNING,
        "address": address,
        "has_stopped": "stopped" in request.GET,
        "errors": [error for errors in form.errors.values() for error in errors],
    }
    template = "endpoints/_app.html" if request.htmx else "endpoints/app.html"
    return render(request, template, context, status=422 if form.errors else 200)


@signed_in_act
def unpublish(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Make an app private again."""
    endpoint = get_object_or_404(Endpoint, session=_visible(request, session_id), app=name)
    services.unpublish(endpoint, actor=request.user)
    return _updated_launcher(request, endpoint.session)


@signed_in_act
def close(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Close an app to everybody."""
    endpoint = get_object_or_404(Endpoint, session=_visible(request, session_id), app=name)
    try:
        services.close(endpoint, actor=request.user)
    except RejectedError as refusal:
        form = OpenForm({"app": name})
        form.add_error(None, " ".join(refusal.errors.values()))
        template = "endpoints/_apps.html" if request.htmx else "endpoints/apps.html"
        return render(request, template, _launcher_context(endpoint.session, form), status=422)
    return _updated_launcher(request, endpoint.session)


@signed_in_act
def share(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Create a share link, and show it once."""
    session = _visible(request, session_id)
    endpoint = get_object_or_404(Endpoint, session=session, app=name)
    form = ShareForm(request.POST)
    link = ""
    if form.is_valid():
        try:
            expires = timezone.now() + form.lifetime
            secret = services.share(
                endpoint, expires=expires, note=form.cleaned_data["note"], actor=request.user
            ).secret
            link = addresses.share_url(secret)
        except RejectedError as refusal:
            form.add_error(None, " ".join(refusal.errors.values()))
    context = _launcher_context(session, OpenForm()) | {"share_form": form, "share_link": link, "shared": endpoint}
    return render(request, "endpoints/_apps.html" if request.htmx else "endpoints/apps.html", context)


@signed_in_act
def revoke_link(request: UserRequest, session_id: str, link_id: int) -> HttpResponse:
    """Revoke a share link."""
    session = _visible(request, session_id)
    link = get_object_or_404(ShareLink.objects.filter(endpoint__session=session), pk=link_id)
    services.revoke(link, actor=request.user)
    return _updated_launcher(request, session)


def _open(request: UserRequest, session: Session, form: OpenForm) -> str | None:
    """Open the app of the form; return a note for the user, or None with the errors in the form."""
    try:
        with transaction.atomic():
            opened = services.open_app(session, form.app_name, actor=request.user, preferred_port=form.preferred_port)
            if form.cleaned_data["public"]:
                services.publish(opened.endpoint, actor=request.user)
    except RejectedError as refusal:
        for name, message in refusal.errors.items():
            form.add_error(name if name in form.fields and name != GENERAL else None, message)
        return None
    return opened.note


def _to_page(request: UserRequest, session: Session, name: str, note: str) -> HttpResponse:
    """Redirect to the page of an app that starts; with a note, the page waits for the user to read it."""
    path = reverse("endpoints:app", args=[session.pk, name])
    flags = ["imported"] if "imported" in request.GET else []
    if note:
        messages.info(request, note)
        flags.append("told")
    return redirect(f"{path}?{'&'.join(flags)}" if flags else path)


def _redirect_target(request: UserRequest, address: str) -> str:
    """Return where to redirect: the app once it is READY, this page without `?stopped` if it is not; or ""."""
    if "stopped" in request.GET:
        return "" if address else request.path
    return "" if "told" in request.GET else address


def _redirect(request: UserRequest, address: str, *, is_app: bool) -> HttpResponse:
    """Redirect; for htmx, static/js/app.js replaces the page by an app, so that Back does not return to the page."""
    if not request.htmx:
        return redirect(address)
    if not is_app:
        return HttpResponseClientRedirect(address)
    return trigger_client_event(HttpResponse(status=204), "app:ready", {"address": address})


def _updated_launcher(request: UserRequest, session: Session) -> HttpResponse:
    if request.htmx:
        return render(request, "endpoints/_apps.html", _launcher_context(session, OpenForm()))
    return redirect("endpoints:apps", session.pk)


def _launcher_context(session: Session, form: OpenForm) -> dict[str, Any]:
    apps = list(session.image.apps.all())
    valid_links = Prefetch("share_links", ShareLink.objects.valid().select_related("created_by"))
    endpoints = list(Endpoint.objects.unclosed().filter(session=session).prefetch_related(valid_links))
    for endpoint in endpoints:
        endpoint.session = session  # whose image's apps are read once
    by_name = {app.name: app for app in apps}
    return {
        "session": session,
        "is_running": session.status == Status.RUNNING,
        "no_apps": routes.HOST_NETWORK if session.has_host_network else "",
        "apps": apps,
        "form": form,
        "opened": [_OpenedRow(endpoint, by_name.get(endpoint.app)) for endpoint in endpoints],
        "may_publish": session.bounds.allow_public_apps,
        "has_ssh": bool(settings.COMPUTE_SSH_ADDRESS),
        "port_pool": settings.COMPUTE_APP_PORTS,
        "is_by_port": app_addresses.site().is_by_port,
        "share_lifetimes": SHARE_LIFETIMES,
        **opened_files.context_of(session),
    }


class _OpenedRow:
    """An opened endpoint, as the launcher's template lists it."""

    def __init__(self, endpoint: Endpoint, app: App | None) -> None:
        self.endpoint = endpoint
        self.icon_name = (app.icon if app else "") or "plug"
        self.address = app_addresses.first_page(endpoint)
        self.port_address = app_addresses.first_page_at_port(endpoint)
        self.links = endpoint.share_links.all()


def _is_ready(session: Session, endpoint: Endpoint) -> bool:
    return endpoint.state == EndpointState.READY and session.status == Status.RUNNING


def _visible(request: UserRequest, session_id: str) -> Session:
    """Return the session. Raises Http404 for users who may not see it."""
    sessions = Session.objects.operable_by(request.user).select_related(
        "image", "owner__policy", "project__policy", "host", "cluster"
    )
    return get_object_or_404(sessions.prefetch_related("image__apps"), pk=session_id)
