"""The page of a session, its logs, and the dialog that ends sessions."""

import json
import re
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.requests import UserRequest
from sessions import conversions, logs, services
from sessions.lifecycle import Status
from sessions.models import SESSION_ID, Session, SessionQuerySet
from sessions.ssh_command import ssh_command

BULK_LIMIT: Final = 200
CONVERSIONS_SHOWN: Final = 10
TERMINAL_CODE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@require_safe
@login_required
@never_cache
@vary_on_headers("HX-Request")
def detail(request: UserRequest, session_id: str) -> HttpResponse:
    """Show one session; return only the live part to htmx."""
    session = _visible(request, session_id)
    context: dict[str, Any] = {
        "session": session,
        "events": session.events.select_related("actor"),
        "usage": session.usages.exclude(gpu_memory=None).first() if session.fgpu else None,
        "dependencies": session.depends_on.order_by("name"),
        "mounts": session.mounts.all(),
        "ssh_command": ssh_command(session),
        "conversions": conversions.of_session(session)[:CONVERSIONS_SHOWN],
        "may_convert": session.status == Status.RUNNING and conversions.may_convert(request.user, session),
    }
    if request.htmx:
        return render(request, "sessions/_detail.html", context)
    return render(request, "sessions/detail.html", context | _log_context(session))


@require_safe
@login_required
@never_cache
@vary_on_headers("HX-Request")
def session_logs(request: UserRequest, session_id: str) -> HttpResponse:
    """Show the last lines of output; return only the text to htmx."""
    session = _visible(request, session_id)
    template = "sessions/_logs.html" if request.htmx else "sessions/logs.html"
    return render(request, template, {"session": session} | _log_context(session))


@require_safe
@login_required
@never_cache
def download_logs(request: UserRequest, session_id: str) -> HttpResponse:
    """Send the output as a text file."""
    session = _visible(request, session_id)
    try:
        text, status = logs.read(session, logs.DOWNLOAD_LINES), 200
    except logs.LogsUnavailableError as error:
        text, status = str(error), 503
    response = HttpResponse(text, content_type="text/plain; charset=utf-8", status=status)
    response["Content-Disposition"] = f'attachment; filename="{session.name}-{session.pk}.log"'
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
@vary_on_headers("HX-Request")
def terminate(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for confirmation, or end one session."""
    _visible(request, session_id)
    return _terminate(request, Session.objects.filter(pk=session_id))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
@vary_on_headers("HX-Request")
def terminate_many(request: UserRequest) -> HttpResponse:
    """Ask for confirmation, or end the selected sessions; ids that the user may not see are ignored."""
    ids = (request.POST if request.method == "POST" else request.GET).getlist("ids")
    known = [session_id for session_id in ids[:BULK_LIMIT] if re.fullmatch(SESSION_ID, session_id)]
    return _terminate(request, Session.objects.filter(pk__in=known))


def _terminate(request: UserRequest, chosen: SessionQuerySet) -> HttpResponse:
    sessions = list(chosen.visible_to(request.user).live())
    if request.method != "POST":
        template = "sessions/_terminate.html" if request.htmx else "sessions/terminate.html"
        return render(request, template, {"sessions": sessions, "action": request.path})
    for session in sessions:
        services.terminate(session, actor=request.user)
    text = _ending(sessions)
    if request.htmx:
        return HttpResponse(status=204, headers={"HX-Trigger": json.dumps({"sessions:ended": {"message": text}})})
    messages.success(request, text)
    return redirect("sessions:list")


def _visible(request: UserRequest, session_id: str) -> Session:
    """Return the session; raise Http404 unless it is visible to the user."""
    visible = Session.objects.visible_to(request.user)
    sessions = visible.select_related("owner__policy", "image", "resource_group", "host", "lease")
    return get_object_or_404(sessions.prefetch_related("lease__shares__gpu"), pk=session_id)


def _log_context(session: Session) -> dict[str, Any]:
    try:
        text = logs.read(session, logs.PANEL_LINES)
    except logs.LogsUnavailableError as error:
        return {"log_problem": str(error)}
    return {"log_text": TERMINAL_CODE.sub("", text), "log_is_live": session.status == Status.RUNNING}


def _ending(sessions: list[Session]) -> str:
    if not sessions:
        return "Nothing to end: these sessions have already ended."
    return f"Ending {sessions[0].name}." if len(sessions) == 1 else f"Ending {len(sessions)} sessions."
