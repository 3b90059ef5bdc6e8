"""The pages between the click and the app: the launcher, what it opens, and what was opened to others."""

import re
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import HttpResponseClientRedirect, trigger_client_event

from accounts.requests import UserRequest
from endpoints import addresses, services
from endpoints.app_forms import LIVES, OpenForm, ShareForm
from resources.models import App
from sessions import app_addresses, app_states
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session, ShareLink

_PORT_APP: Final = re.compile(r"p[0-9]{4,5}")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
@vary_on_headers("HX-Request")
def launcher(request: UserRequest, session_id: str) -> HttpResponse:
    """Show what the session offers, or open what was chosen and go on to its page; htmx gets the dialog."""
    session = _visible(request, session_id)
    form = OpenForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and (note := _open(request, session, form)) is not None:
        return _to_page(request, session, form.app_name, note)
    template = "endpoints/_apps.html" if request.htmx else "endpoints/apps.html"
    return render(request, template, _launcher_context(session, form), status=422 if form.is_bound else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
@vary_on_headers("HX-Request")
def app(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Show how far the app is and go on to it once it answers; POST starts it, or starts it again.

    `?stopped` comes from a proxy that found it dead, `?told` shows a message: then it is not gone on to by itself.
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
    if not form.is_bound and (elsewhere := _elsewhere(request, address)):
        return _go_on(request, elsewhere, is_app=elsewhere == address)
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


@require_POST
@login_required
@never_cache
def unpublish(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Close an app to those who have not signed in."""
    endpoint = get_object_or_404(Endpoint, session=_visible(request, session_id), app=name)
    services.unpublish(endpoint, actor=request.user)
    return _launcher_again(request, endpoint.session)


@require_POST
@login_required
@never_cache
def close(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Let no way lead to an app any more."""
    endpoint = get_object_or_404(Endpoint, session=_visible(request, session_id), app=name)
    services.close(endpoint, actor=request.user)
    return _launcher_again(request, endpoint.session)


@require_POST
@login_required
@never_cache
def share(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    """Make a share link and show it, this once."""
    session = _visible(request, session_id)
    endpoint = get_object_or_404(Endpoint, session=session, app=name)
    form = ShareForm(request.POST)
    link = ""
    if form.is_valid():
        try:
            expires = timezone.now() + form.life
            secret = services.share(
                endpoint, expires=expires, note=form.cleaned_data["note"], actor=request.user
            ).secret
            link = addresses.share_url(secret)
        except RejectedError as refusal:
            form.add_error(None, " ".join(refusal.errors.values()))
    context = _launcher_context(session, OpenForm()) | {"share_form": form, "share_link": link, "shared": endpoint}
    return render(request, "endpoints/_apps.html" if request.htmx else "endpoints/apps.html", context)


@require_POST
@login_required
@never_cache
def revoke_link(request: UserRequest, session_id: str, link_id: int) -> HttpResponse:
    """Void a share link."""
    session = _visible(request, session_id)
    link = get_object_or_404(ShareLink.objects.filter(endpoint__session=session), pk=link_id)
    services.revoke(link, actor=request.user)
    return _launcher_again(request, session)


def _open(request: UserRequest, session: Session, form: OpenForm) -> str | None:
    """Open what the form says; return what its user should know, or None with the refusal in the form."""
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
    """Go on to the page of an app that is being opened; a note is to be read before the app takes its place."""
    path = reverse("endpoints:app", args=[session.pk, name])
    if note:
        messages.info(request, note)
    return redirect(f"{path}?told" if note else path)


def _elsewhere(request: UserRequest, address: str) -> str:
    """Return where to go on to: the app once it answers, its page where it is known already that it does not; or ""."""
    if "stopped" in request.GET:
        return "" if address else request.path
    return "" if "told" in request.GET else address


def _go_on(request: UserRequest, address: str, *, is_app: bool) -> HttpResponse:
    """Go on to an address; a page that is shown leaves to an app by static/js/app.js, and is not come back to."""
    if not request.htmx:
        return redirect(address)
    if not is_app:
        return HttpResponseClientRedirect(address)
    return trigger_client_event(HttpResponse(status=204), "app:ready", {"address": address})


def _launcher_again(request: UserRequest, session: Session) -> HttpResponse:
    if request.htmx:
        return render(request, "endpoints/_apps.html", _launcher_context(session, OpenForm()))
    return redirect("endpoints:apps", session.pk)


def _launcher_context(session: Session, form: OpenForm) -> dict[str, Any]:
    apps = list(session.image.apps.all())
    endpoints = Endpoint.objects.unclosed().filter(session=session).select_related("session__image")
    by_name = {app.name: app for app in apps}
    return {
        "session": session,
        "is_running": session.status == Status.RUNNING,
        "apps": apps,
        "form": form,
        "opened": [_Opened(endpoint, by_name.get(endpoint.app)) for endpoint in endpoints],
        "may_publish": session.owner.policy.allow_public_apps,
        "has_ssh": bool(settings.COMPUTE_SSH_ADDRESS),
        "port_pool": settings.COMPUTE_APP_PORTS,
        "is_by_port": app_addresses.site().is_by_port,
        "lives": LIVES,
    }


class _Opened:
    """An endpoint as the launcher lists it."""

    def __init__(self, endpoint: Endpoint, app: App | None) -> None:
        self.endpoint = endpoint
        self.icon_name = (app.icon if app else "") or "plug"
        self.address = app_addresses.first_page(endpoint)
        self.port_address = app_addresses.first_page_at_port(endpoint)
        self.links = endpoint.share_links.valid()


def _is_ready(session: Session, endpoint: Endpoint) -> bool:
    return endpoint.state == EndpointState.READY and session.status == Status.RUNNING


def _visible(request: UserRequest, session_id: str) -> Session:
    """Return the session; for a stranger it does not exist."""
    sessions = Session.objects.visible_to(request.user).select_related("image", "owner__policy")
    return get_object_or_404(sessions, pk=session_id)
