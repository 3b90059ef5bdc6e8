"""The output of a session: the panel of its page, a page of its own, and the download."""

import hashlib
from typing import Any, Final, NamedTuple

from django.http import HttpResponse
from django.shortcuts import render

from accounts.requests import UserRequest, signed_in_page
from pages.session.logs.ansi import coloured
from pages.session.queries import operable_session
from sessions.following import logs
from sessions.lifecycle import Status
from sessions.models import Session

PAGE_LINES: Final = 2000  # of the page of its own
SHOWN_CHARACTERS: Final = 256 * 1024  # whose colours take a moment at most; a line may have any length


@signed_in_page
def session_logs(request: UserRequest, session_id: str) -> HttpResponse:
    """Show the last lines of output; return only the text to htmx, and 204 where that has it already."""
    session = operable_session(request, session_id)
    wants_page = not request.htmx or request.GET.get("lines") == "all"
    output = _read(session, PAGE_LINES if wants_page else logs.PANEL_LINES)
    if request.htmx and request.GET.get("digest") == output.digest:
        return HttpResponse(status=204)
    template = "sessions/_logs.html" if request.htmx else "sessions/logs.html"
    return render(request, template, {"session": session, "is_log_page": wants_page} | _context(session, output))


@signed_in_page
def download_logs(request: UserRequest, session_id: str) -> HttpResponse:
    """Send the output as a text file, as it was written."""
    session = operable_session(request, session_id)
    try:
        text, status = logs.read(session, logs.DOWNLOAD_LINES), 200
    except logs.LogsUnavailableError as error:
        text, status = str(error), 503
    response = HttpResponse(text, content_type="text/plain; charset=utf-8", status=status)
    response["Content-Disposition"] = f'attachment; filename="{session.name}-{session.pk}.log"'
    return response


def log_context(session: Session) -> dict[str, Any]:
    """Return the last lines as HTML, or why there are none."""
    return _context(session, _read(session, logs.PANEL_LINES))


class _Output(NamedTuple):
    """The end of a session's output, or why it cannot be had; the digest is that of both."""

    problem: str
    text: str
    digest: str


def _read(session: Session, lines: int) -> _Output:
    problem = text = ""
    try:
        text = logs.read(session, lines)[-SHOWN_CHARACTERS:]
    except logs.LogsUnavailableError as error:
        problem = str(error)
    digest = hashlib.sha256(f"{session.is_final}{problem}{text}".encode(errors="replace")).hexdigest()[:16]
    return _Output(problem, text, digest)


def _context(session: Session, output: _Output) -> dict[str, Any]:
    return {
        "log_problem": output.problem,
        "log_html": coloured(output.text),
        "log_digest": output.digest,
        "log_is_live": session.status == Status.RUNNING,
    }
