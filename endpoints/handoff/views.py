"""The platform's side of the hand-over to apps: authorization of a browser for an endpoint, and share links.

A share link grants no access by itself, else a foreign page could log somebody in (log-in CSRF). Its page needs a
click, which sets a cookie for two minutes and redirects to the app; the app's origin redirects to `authorize` as
always, where the cookie stands in for a log-in.
"""

import re
from typing import Final

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.http.response import HttpResponseRedirectBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import User
from deployments import addresses as deployment_addresses
from deployments import events
from deployments.models import Deployment
from endpoints import services
from endpoints.handoff import tickets
from endpoints.routing import addresses, routes
from proxy.authorization.login_flow import NEXT
from proxy.authorization.signing import digest
from sessions.access import app_addresses
from sessions.access.entries import record_entry
from sessions.models import Endpoint, EndpointState, ShareLink, ShareLinkQuerySet

SHARE_COOKIE_SECONDS: Final = 120  # from the click on a share link's page to the hand-over
NOT_RUNNING: Final = "The app behind this link does not run at present."
_STATE: Final = re.compile("[0-9a-f]{64}")


class SeeOther(HttpResponseRedirectBase):
    """303 See Other (RFC 9110, section 15.4.4): the browser fetches the location with GET."""

    status_code = 303


@require_GET
@never_cache
def authorize(request: HttpRequest) -> HttpResponse:
    """Redirect an authorized browser back to the app or deployment `h` with a ticket; `s` is its nonce's digest.

    `at` is the host name of a deployment's own by which it was asked for.

    Anonymous users sign in first; an address that the user may not use does not exist. An app that is not READY yet
    has its proxy say so; where it can have none, the owner is redirected to its page.
    """
    state, path = request.GET.get("s", ""), request.GET.get("next", "/")
    if not _STATE.fullmatch(state):
        return HttpResponseBadRequest("This address is incomplete. Open the app from its session again.")
    related = Endpoint.objects.select_related("session__owner", "session__host")
    endpoint = related.labelled(request.GET.get("h", "")).first()
    user = request.user if isinstance(request.user, User) else None
    if endpoint and user and (user.is_superuser or user == endpoint.session.owner):
        login = digest(request.session.session_key or "")
        response = _hand_over(request, endpoint, user=user, login=login, state=state, path=path)
    elif endpoint and (link := _shared(request.COOKIES.get(share_cookie(), "")).filter(endpoint=endpoint).first()):
        response = _hand_over(request, endpoint, user=None, login=link.digest, state=state, path=path)
    elif user and (found := _deployment(user, request.GET.get("h", ""), request.GET.get("at", ""))):
        deployment, address = found
        login = digest(request.session.session_key or "")
        ticket = tickets.issue_for(deployment, user=user, login=login, state=state, path=_path_within(path))
        response = SeeOther(f"{address}/.gp/callback?t={ticket}")
        if user.is_superuser and user != deployment.owner:
            events.record(deployment, "Used by a superadmin.", user)
    elif user is None:
        return redirect_to_login(request.get_full_path())
    else:
        raise Http404
    response["Referrer-Policy"] = "no-referrer"
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def shared(request: HttpRequest, secret: str) -> HttpResponse:
    """Show whose app a share link opens; POST sets the share cookie and redirects to the app."""
    link = _shared(secret).select_related("endpoint__session__owner").first()
    if link is None:
        return _unavailable(request, "This link is wrong, has expired, or was withdrawn.")
    if not _is_ready(link.endpoint):
        return _unavailable(request, NOT_RUNNING)
    response: HttpResponse
    if request.method == "POST":
        response = SeeOther(app_addresses.first_page(link.endpoint))
        response.set_cookie(
            share_cookie(),
            secret,
            max_age=SHARE_COOKIE_SECONDS,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
    else:
        context = {"link": link, "endpoint": link.endpoint, "is_by_port": app_addresses.site().is_by_port}
        response = render(request, "endpoints/shared.html", context)
    response["Referrer-Policy"] = "same-origin"  # the secret is in the URL; Django's CSRF check needs the origin
    return response


def share_cookie() -> str:
    """Return the name of the cookie that holds the secret of a share link."""
    return "__Host-gp_share" if settings.COMPUTE_HTTPS else "gp_share"


def _hand_over(
    request: HttpRequest, endpoint: Endpoint, *, user: User | None, login: str, state: str, path: str
) -> HttpResponse:
    if not _has_route(endpoint):
        return redirect(addresses.launch_path(endpoint)) if user else _unavailable(request, NOT_RUNNING)
    if user and user != endpoint.session.owner:
        services.note_access(endpoint, user)
    if user is None:
        ShareLink.objects.filter(digest=login).update(last_used_at=timezone.now())
        record_entry(endpoint.session, None, f"the app {endpoint.title}")
    ticket = tickets.issue(endpoint, user=user, login=login, state=state, path=_path_within(path))
    return SeeOther(f"{app_addresses.origin(endpoint)}/.gp/callback?t={ticket}")


def _deployment(user: User, label: str, host_name: str) -> tuple[Deployment, str] | None:
    """Return the deployment with this label and its address with this host name, if the user may use it there."""
    deployment = Deployment.objects.visible_to(user).labelled(label).first()
    address = deployment_addresses.origin_at(deployment, host_name) if deployment else ""
    return (deployment, address) if deployment and address else None


def _path_within(path: str) -> str:
    return path if NEXT.fullmatch(path) else "/"


def _is_ready(endpoint: Endpoint) -> bool:
    return endpoint.state == EndpointState.READY and _has_route(endpoint)


def _has_route(endpoint: Endpoint) -> bool:
    has_origin = bool(app_addresses.origin(endpoint))
    return endpoint.state != EndpointState.CLOSED and has_origin and not routes.obstacle(endpoint.session)


def _shared(secret: str) -> ShareLinkQuerySet:
    return ShareLink.objects.valid().filter(digest=digest(secret))


def _unavailable(request: HttpRequest, reason: str) -> HttpResponse:
    return render(request, "endpoints/shared_unavailable.html", {"why": reason}, status=404)
