"""The dialog that lets a running session go on for longer."""

from datetime import timedelta

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django_htmx.http import trigger_client_event

from accounts.requests import UserRequest, signed_in_form
from resources.amounts.units import span_text
from sessions.errors import RejectedError
from sessions.extensions import services as extensions
from sessions.models import Session


@signed_in_form
def extend(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask by how much, or let the session run longer."""
    visible = Session.objects.operable_by(request.user).select_related(
        "owner__policy", "project__policy", "resource_group"
    )
    session = get_object_or_404(visible, pk=session_id)
    error = ""
    if request.method == "POST":
        minutes = request.POST.get("minutes", "")
        by = timedelta(minutes=int(minutes) if minutes.isdecimal() and len(minutes) < 7 else 0)
        try:
            extensions.extend(session.pk, by, actor=request.user)
        except RejectedError as rejected:
            error = " ".join(rejected.errors.values())
        else:
            text = _("%(name)s runs %(span)s longer.") % {"name": session.name, "span": span_text(by)}
            return _done(request, session, text)
    return _ask(request, session, error)


def _done(request: UserRequest, session: Session, text: str) -> HttpResponse:
    if request.htmx:
        return trigger_client_event(HttpResponse(status=204), "sessions:extended", {"message": text})
    messages.success(request, text)
    return redirect("sessions:detail", session.pk)


def _ask(request: UserRequest, session: Session, error: str) -> HttpResponse:
    """Show the lengths to choose from; a refused one is answered with 422."""
    offered = extensions.offers(session, request.user)
    context = {
        "session": session,
        "offers": [(int(span.total_seconds()) // 60, span) for span in offered],
        "refusal": "" if offered else extensions.refusal(session, request.user),
        "error": error,
    }
    template = "sessions/_extend.html" if request.htmx else "sessions/extend.html"
    return render(request, template, context, status=422 if error else 200)
