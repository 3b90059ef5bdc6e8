"""The address of launch links, the badge's pictures, and the dialog that shares what a session was launched with."""

import re
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from accounts.requests import UserRequest, signed_in_page
from pages.launch.links import link_of
from pages.launch.offer import LaunchOffer
from pages.session.queries import operable_session
from pages.sharing.snippets import LaunchBadge
from sessions.models import SESSION_ID

BADGE_SECONDS: Final = 24 * 60 * 60  # that a browser or an image proxy keeps a badge


@require_safe
def launch_link(request: HttpRequest) -> HttpResponse:
    """Redirect to the review of the wizard, which the link fills in, to a template, or to the import of a repository.

    Nothing is launched by it.
    """
    if re.fullmatch(SESSION_ID, template := request.GET.get("template", "")):
        return redirect("sessions:template", template)
    query = request.GET.urlencode()
    path = reverse("imports:new") if "repo" in request.GET else reverse("sessions:launch-step", args=["review"])
    return redirect(f"{path}?{query}" if query else path)


@require_safe
@cache_control(public=True, max_age=BADGE_SECONDS)
def badge(request: HttpRequest, theme: str) -> HttpResponse:
    """Return the badge; its address has no fingerprint, unlike those of static files, as it is in documents."""
    picture = settings.BASE_DIR / f"static/img/launch-badge-{theme}.svg"
    return HttpResponse(picture.read_bytes(), content_type="image/svg+xml")


@signed_in_page
def share(request: UserRequest, session_id: str) -> HttpResponse:
    """Show the link that launches what a session was launched with, and its badge."""
    session = operable_session(request, session_id)
    names = {"light": "launch-badge", "dark": "launch-badge-dark"}
    pictures = {theme: request.build_absolute_uri(reverse(name)) for theme, name in names.items()}
    link = request.build_absolute_uri(link_of(LaunchOffer(request.user), session))
    context = {"session": session, "badge": LaunchBadge(link=link, **pictures)}
    return render(request, "sharing/_share.html" if request.htmx else "sharing/share.html", context)
