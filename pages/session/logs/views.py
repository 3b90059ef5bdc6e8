"""The output of a session: the panel of its page, a page of its own, and the download."""

from functools import partial
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.requests import UserRequest, signed_in_page
from pages.log_panel.panel import PAGE_LINES, ShownOutput, download, read_shown
from pages.session.queries import operable_session
from sessions.following import logs
from sessions.models import Session


@signed_in_page
def session_logs(request: UserRequest, session_id: str) -> HttpResponse:
    """Show the last lines of output; return only the text to htmx, and 204 where that has it already."""
    session = operable_session(request, session_id)
    wants_page = not request.htmx or request.GET.get("lines") == "all"
    is_previous = "previous" in request.GET
    output = _read(session, PAGE_LINES if wants_page else logs.PANEL_LINES, is_previous=is_previous)
    if request.htmx and request.GET.get("digest") == output.digest:
        return HttpResponse(status=204)
    template = "sessions/_logs.html" if request.htmx else "sessions/logs.html"
    context = {"session": session, "is_log_page": wants_page} | _context(session, output, is_previous=is_previous)
    return render(request, template, context)


@signed_in_page
def download_logs(request: UserRequest, session_id: str) -> HttpResponse:
    """Send the output as a text file, as it was written."""
    session = operable_session(request, session_id)
    read = logs.read_previous if "previous" in request.GET else logs.read
    return download(partial(read, session), f"{session.name}-{session.pk}")


def log_context(session: Session) -> dict[str, Any]:
    """Return the last lines as HTML, or why there are none."""
    return _context(session, _read(session, logs.PANEL_LINES))


def _read(session: Session, lines: int, *, is_previous: bool = False) -> ShownOutput:
    read = logs.read_previous if is_previous else logs.read
    return read_shown(partial(read, session), lines, is_final=is_previous or session.is_final)


def _context(session: Session, output: ShownOutput, *, is_previous: bool = False) -> dict[str, Any]:
    query = "?previous=1" if is_previous else ""
    return {
        **output.context(is_final=is_previous or session.is_final),
        "is_previous_log": is_previous,
        "has_previous_log": any(each.previous_output for each in logs.chosen(session)),
        "log_url": reverse("sessions:logs", args=[session.pk]) + query,
        "log_download_url": reverse("sessions:logs-download", args=[session.pk]) + query,
    }
