"""The terminal page, and the page shown until the session runs."""

from typing import Final

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django_htmx.http import HttpResponseClientRefresh

from accounts.requests import UserRequest, signed_in_page
from sessions.lifecycle import Status
from sessions.models import Session

BEFORE_RUNNING: Final = frozenset({Status.PENDING, Status.SCHEDULED, Status.PREPARING})


@signed_in_page
def terminal(request: UserRequest, session_id: str) -> HttpResponse:
    """Show the terminal, or why there is none; the waiting page requests this again when the session changes."""
    session = get_object_or_404(
        Session.objects.operable_by(request.user).select_related(
            "image", "owner__policy", "project__policy", "resource_group"
        ),
        pk=session_id,
    )
    is_running = session.status == Status.RUNNING
    if request.htmx and is_running:
        return HttpResponseClientRefresh()
    if is_running:
        return render(request, "sessions/terminal.html", {"session": session})
    template = "sessions/_terminal_waiting.html" if request.htmx else "sessions/terminal_waiting.html"
    return render(request, template, {"session": session, "will_run": session.status in BEFORE_RUNNING})
